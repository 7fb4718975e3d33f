/* SPDX-License-Identifier: BSD-2-Clause */
/* What rails there are, while no engine is open. */
#include "plugin/error.h"
#include "plugin/host.h"
#include "plugin/module.h"
#include "plugin/services.h"

/*
 * In a process of its own: one that was built before there was the question may crash.  One that has
 * an answer gives the same in this process.
 */
static escrow_status rails_probe(const struct escrow_module *module, struct escrow_error *error)
{
	struct escrow_probe_args probe = {
		.size = sizeof(probe), .flags = ESCROW_PROBE_RAILS, .path = module_mapped(module)};

	return escrow_probe(&probe, NULL, error);
}

static int32_t rails_ask(const struct escrow_rails *table, const struct escrow_host_args *args,
			 const struct host_config *config, struct escrow_rail *rails, uint32_t max,
			 uint32_t stride, struct escrow_error *error)
{
	struct services services = {0};
	struct escrow_open_args open = {.size = sizeof(open),
					.host = &services.host,
					.revision = module_backend(args->module)->revision,
					.kv = config->kv,
					.nkv = config->nkv,
					.kv_stride = sizeof(*config->kv),
					.engine_name = args->engine_name};

	services_init(&services, args);
	return table->list(&open, rails, max, stride, error);
}

int32_t escrow_rails(const struct escrow_host_args *args, struct escrow_rail *rails, uint32_t max,
		     uint32_t stride, struct escrow_error *error)
{
	const struct escrow_rails *table;
	struct host_config config;
	escrow_status status = host_check_args(args, error);
	const char *id;
	int32_t n;

	if (status != ESCROW_OK)
		return status;
	status = rails_probe(args->module, error);
	if (status != ESCROW_OK)
		return status;
	id = module_backend(args->module)->id;
	table = module_ops(args->module)->get_extension(NULL, ESCROW_RAILS_ID);
	if (!table || table->size < sizeof(*table) || !table->list)
		return error_set(error, ESCROW_E_UNSUPPORTED, "%s lists no rails", id);
	status = host_config_make(&config, id, args->settings, args->key_file, error);
	if (status != ESCROW_OK)
		return status;
	n = rails_ask(table, args, &config, rails, max, stride, error);
	host_config_free(&config);
	return n;
}
