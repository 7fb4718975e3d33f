/* SPDX-License-Identifier: BSD-2-Clause */
/* Shorthands over JsonBuilder, so that what is told reads as a list of members. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <json-glib/json-glib.h>

void json_add_string(JsonBuilder *json, const char *member, const char *value);
void json_add_bool(JsonBuilder *json, const char *member, bool value);
/* UINT64_MAX, "none", becomes null: JSON's integers end at 2^63. */
void json_add_number(JsonBuilder *json, const char *member, uint64_t value);
void json_add_double(JsonBuilder *json, const char *member, double value);

/* Prints what was built on standard output, with a newline, and frees the builder. */
void json_print(JsonBuilder *json);

#endif
