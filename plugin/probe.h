/* SPDX-License-Identifier: BSD-2-Clause */
/* What escrow-probe and its parent say to each other; no GLib here. */
#ifndef PROBE_H
#define PROBE_H

#define PROBE_FD 3            /* the child's end of the pipe */
#define PROBE_LINE 512        /* longest line, with its newline */
#define PROBE_MAX_SETTINGS 64 /* key=value arguments */
#define PROBE_RAILS "rails,"  /* before what it is to do: rails are asked for too */

#endif
