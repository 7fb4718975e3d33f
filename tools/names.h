/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of the ABI's numbers, for people and for JSON. */
#ifndef NAMES_H
#define NAMES_H

#include <glib.h>
#include <json-glib/json-glib.h>

#include <escrow/backend.h>

/* Constant; "?" for a number that is not known. */
const char *name_of_state(uint32_t state);
const char *name_of_event(uint16_t kind);
const char *name_of_charge(uint32_t kind);
const char *name_of_owner(uint32_t kind);
const char *name_of_owner_state(uint32_t state);
const char *name_of_step(uint32_t step);
const char *name_of_receipt(uint32_t receipt);

/* The capabilities as words, in the order of their bits; g_strfreev is the caller's. */
char **names_of_caps(uint64_t caps);
char **names_of_memory_kinds(uint64_t kinds);

/* Adds a member that is an array of these words. */
void names_add_json(JsonBuilder *json, const char *member, char *const *words);

#endif
