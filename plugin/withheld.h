/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef WITHHELD_H
#define WITHHELD_H

#include "plugin/host.h"

/* Every living host engine, none of which is released meanwhile. */
void withheld_each_engine(void (*each)(void *ctx, struct escrow_host_engine *host), void *ctx);

#endif
