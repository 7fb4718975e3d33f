/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * revision1.h - what the structs measured in revision 1; not installed.
 *
 * Code that knows revision 1 goes by these sizes, not by sizeof: built with the header of a later
 * revision, sizeof counts members that the code does not understand. What a host puts there must
 * be refused, not ignored; and what is shorter, because it comes from revision 1, must be taken.
 * tests/abi/test-growth.sh compares this file with abi/r1.
 */
#ifndef ABI_REVISION1_H
#define ABI_REVISION1_H

#include <escrow/backend.h>

/* ABI_R1(struct's name): its bytes up to and with the member that was last in revision 1. */
#define ABI_R1(type) ABI_THROUGH(type, ABI_R1_LAST_##type)
#define ABI_THROUGH(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

#define ABI_R1_LAST_escrow_hello host_version
#define ABI_R1_LAST_escrow_host get_extension
#define ABI_R1_LAST_escrow_open_args engine_name
#define ABI_R1_LAST_escrow_region_args dmabuf_offset
#define ABI_R1_LAST_escrow_invite_args expires_ns
#define ABI_R1_LAST_escrow_peer_args deadline_ns
#define ABI_R1_LAST_escrow_grant_args length
#define ABI_R1_LAST_escrow_peer_info peer_name
#define ABI_R1_LAST_escrow_limits incarnation
#define ABI_R1_LAST_escrow_kv value
#define ABI_R1_LAST_escrow_option help
#define ABI_R1_LAST_escrow_charge peer_name
#define ABI_R1_LAST_escrow_record text
#define ABI_R1_LAST_escrow_counter name
#define ABI_R1_LAST_escrow_backend ops
#define ABI_R1_LAST_escrow_ops get_extension

#endif
