/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/rdma/rdma.h"

escrow_status error_set(struct escrow_error *error, escrow_status status, int sys_errno,
			const char *format, ...)
{
	va_list ap;
	int n;

	if (!error)
		return status;
	error->status = status;
	error->sys_errno = sys_errno;
	error->vendor = 0;
	va_start(ap, format);
	n = vsnprintf(error->text, sizeof(error->text), format, ap);
	va_end(ap);
	if (sys_errno && n > 0 && (size_t)n < sizeof(error->text))
		snprintf(error->text + n, sizeof(error->text) - (size_t)n, ": %s",
			 strerrordesc_np(sys_errno));
	return status;
}

escrow_status error_status(int rc)
{
	switch (rc) {
	case ENOMEM:
	case EAGAIN: /* a control group (kernel core/cgroup.c, rdmacg_try_charge) */
	case EMFILE:
	case ENFILE:
		return ESCROW_E_NO_MEMORY;
	default:
		return ESCROW_E_DEVICE;
	}
}
