/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow list: the backends that can be found, judged without running anything of them. */
#include "config.h"

#include <stdio.h>

#include "plugin/escrow.h"
#include "tools/json.h"
#include "tools/tool.h"

struct listing {
	JsonBuilder *json; /* NULL: text */
	int files;
	int bad;
};

/* The verdict of the static checks: NULL if the file may be loaded, else the worst finding. */
static const char *verdict(const char *path, struct escrow_finding *worst)
{
	int32_t n = escrow_check_file(path, ESCROW_CHECK_LOAD, worst, 1);

	if (n < 0)
		return "cannot be read";
	return n > 0 && worst->severity == ESCROW_FINDING_ERROR ? worst->text : NULL;
}

static int32_t each_file(void *ctx, const char *name, const char *path)
{
	struct listing *l = ctx;
	struct escrow_finding worst;
	const char *why = verdict(path, &worst);

	l->files++;
	l->bad += why != NULL;
	if (!l->json) {
		printf("%-12s %s%s%s\n", name, path, why ? "  - not loadable: " : "",
		       why ? why : "");
		return 0;
	}
	json_builder_begin_object(l->json);
	json_add_string(l->json, "name", name);
	json_add_string(l->json, "path", path);
	json_add_bool(l->json, "loadable", why == NULL);
	if (why)
		json_add_string(l->json, "why", why);
	json_builder_end_object(l->json);
	return 0;
}

int list_main(int argc, char **argv)
{
	gboolean as_json = FALSE;
	const GOptionEntry options[] = {
		{"json", 0, 0, G_OPTION_ARG_NONE, &as_json, "Machine-readable output", NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	struct listing l = {NULL, 0, 0};

	if (!tool_parse(options, NULL, "",
			"Backends in ESCROW_BACKEND_PATH and the installed folder.", &argc, &argv))
		return TOOL_TROUBLE;
	if (argc > 1) {
		tool_complain("list takes no argument: %s", argv[1]);
		return TOOL_TROUBLE;
	}
	if (as_json) {
		l.json = json_builder_new();
		json_builder_begin_array(l.json);
	}
	escrow_discover(each_file, &l);
	if (as_json) {
		json_builder_end_array(l.json);
		json_print(l.json);
	} else if (!l.files) {
		fprintf(stderr, "no backend found; ESCROW_BACKEND_PATH names folders to look in\n");
	}
	if (!l.files)
		return TOOL_NOTHING;
	return l.bad ? TOOL_NO : TOOL_OK;
}
