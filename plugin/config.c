/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings of an engine: "key=value" texts, and a GKeyFile's group named after the backend. */
#include <string.h>

#include "plugin/error.h"
#include "plugin/host.h"

/* Adds key and value; a key that is there already keeps its first value. */
static void config_add(GHashTable *seen, struct host_config *config, char *key, char *value)
{
	g_ptr_array_add(config->texts, key);
	g_ptr_array_add(config->texts, value);
	if (!g_hash_table_add(seen, key))
		return;
	config->kv = g_renew(struct escrow_kv, config->kv, config->nkv + 1);
	config->kv[config->nkv++] = (struct escrow_kv){key, value};
}

static escrow_status config_add_settings(GHashTable *seen, struct host_config *config,
					 const char *const *settings, struct escrow_error *error)
{
	for (uint32_t i = 0; settings && settings[i]; i++) {
		const char *equals = strchr(settings[i], '=');
		char *key;

		if (!equals || equals == settings[i])
			return error_set(error, ESCROW_E_INVALID,
					 "the setting \"%.100s\" is not key=value", settings[i]);
		key = g_strndup(settings[i], (gsize)(equals - settings[i]));
		if (g_hash_table_contains(seen, key)) {
			error_set(error, ESCROW_E_INVALID, "the key \"%.100s\" is set twice", key);
			g_free(key);
			return ESCROW_E_INVALID;
		}
		config_add(seen, config, key, g_strdup(equals + 1));
	}
	return ESCROW_OK;
}

static escrow_status config_add_group(GHashTable *seen, struct host_config *config, const char *id,
				      struct _GKeyFile *key_file, struct escrow_error *error)
{
	g_auto(GStrv) keys = NULL;

	if (!key_file || !g_key_file_has_group(key_file, id))
		return ESCROW_OK;
	keys = g_key_file_get_keys(key_file, id, NULL, NULL);
	for (uint32_t i = 0; keys && keys[i]; i++) {
		g_autoptr(GError) problem = NULL;
		char *value = g_key_file_get_string(key_file, id, keys[i], &problem);

		if (!value)
			return error_set(error, ESCROW_E_INVALID, "[%s] %.60s: %.120s", id, keys[i],
					 problem->message);
		config_add(seen, config, g_strdup(keys[i]), value);
	}
	return ESCROW_OK;
}

escrow_status host_config_make(struct host_config *config, const char *id,
			       const char *const *settings, struct _GKeyFile *key_file,
			       struct escrow_error *error)
{
	g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
	escrow_status status;

	*config = (struct host_config){.texts = g_ptr_array_new_with_free_func(g_free)};
	status = config_add_settings(seen, config, settings, error);
	if (status == ESCROW_OK)
		status = config_add_group(seen, config, id, key_file, error);
	if (status != ESCROW_OK)
		host_config_free(config);
	return status;
}

void host_config_free(struct host_config *config)
{
	g_free(config->kv);
	g_clear_pointer(&config->texts, g_ptr_array_unref);
	config->kv = NULL;
	config->nkv = 0;
}
