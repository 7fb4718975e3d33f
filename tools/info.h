/* SPDX-License-Identifier: BSD-2-Clause */
/* The rails that a backend would find, for `escrow info`. */
#ifndef TOOLS_INFO_H
#define TOOLS_INFO_H

#include "plugin/escrow.h"
#include "tools/json.h"

struct info_rails {
	escrow_status status; /* E_UNSUPPORTED: the backend lists none */
	uint32_t n;
	uint32_t more; /* that are not in the table */
	struct escrow_rail *rails;
	char text[240]; /* of a failure */
	bool unasked;   /* the failure is ours: the question was not put */
};

/* Asks in a process of its own; never NULL. */
struct info_rails *info_rails_find(struct escrow_module *module, const char *const *settings);
/* Those of the rails that open would use, with their drivers, as a text to be freed. */
char *info_rails_devices(struct escrow_module *module, const char *const *settings);
void info_rails_free(struct info_rails *found);
void info_rails_print(const struct info_rails *found);
/* The member "rails", or "rails_error"; none if the backend lists none. */
void info_rails_add(JsonBuilder *json, const struct info_rails *found);

#endif
