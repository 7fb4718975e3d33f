/* SPDX-License-Identifier: BSD-2-Clause */
/* device.h - the devices of an engine. */
#ifndef SIMULATE_DEVICE_H
#define SIMULATE_DEVICE_H

#include <stdint.h>

struct escrow_engine;
struct ibv_context;

/* One of them; NULL: it is closed. */
struct ibv_context *device_of(struct escrow_engine *e, uint32_t pick);

#endif
