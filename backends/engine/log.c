/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void en_log(struct escrow_engine *e, int32_t level, const char *format, ...)
{
	char text[256];
	va_list ap;

	if (!e->host.log_enabled(e->host.ctx, level))
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	e->host.log(e->host.ctx, level, e->ops->id, text, strlen(text));
}
