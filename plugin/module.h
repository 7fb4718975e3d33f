/* SPDX-License-Identifier: BSD-2-Clause */
/* A loaded backend: one mapped object, its descriptor and our copy of its table. */
#ifndef MODULE_H
#define MODULE_H

#include "plugin/escrow.h"

struct escrow_module;

/* The copy of the table: every slot is callable; absent optional ones answer E_UNSUPPORTED. */
const struct escrow_ops *module_ops(const struct escrow_module *module);
const struct escrow_backend *module_backend(const struct escrow_module *module);
/* The path that it was loaded from. */
const char *module_mapped(const struct escrow_module *module);

/* One engine more or less; an engine keeps its module in use. */
void module_engine_opened(struct escrow_module *module);
void module_engine_released(struct escrow_module *module);

/* Calls each for every mapped module. */
void module_each(void (*each)(void *ctx, struct escrow_module *module), void *ctx);

#endif
