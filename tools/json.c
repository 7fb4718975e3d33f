/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <stdio.h>

#include "tools/json.h"

void json_add_string(JsonBuilder *json, const char *member, const char *value)
{
	json_builder_set_member_name(json, member);
	json_builder_add_string_value(json, value);
}

void json_add_bool(JsonBuilder *json, const char *member, bool value)
{
	json_builder_set_member_name(json, member);
	json_builder_add_boolean_value(json, value);
}

void json_add_number(JsonBuilder *json, const char *member, uint64_t value)
{
	json_builder_set_member_name(json, member);
	if (value > INT64_MAX)
		json_builder_add_null_value(json);
	else
		json_builder_add_int_value(json, (gint64)value);
}

void json_add_double(JsonBuilder *json, const char *member, double value)
{
	json_builder_set_member_name(json, member);
	json_builder_add_double_value(json, value);
}

void json_print(JsonBuilder *json)
{
	g_autoptr(JsonNode) root = json_builder_get_root(json);
	g_autofree char *text = json_to_string(root, TRUE);
	g_autofree char *valid = g_utf8_make_valid(text, -1); /* a path may be no UTF-8 */

	puts(valid);
	g_object_unref(json);
}
