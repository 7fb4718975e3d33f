/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * entry.h - how a backend is made of the engine and a native table.  The whole of such a backend's
 * own file is:
 *
 *	static const struct engine_backend self = {.native = &mock_native, .version = "1.0"};
 *	static const struct escrow_option options[] = {ENGINE_OPTIONS {"rails", "1", "..."}};
 *	ENGINE_BACKEND(&self, "mock", "1.0", MOCK_CAPS, ESCROW_MEMORY_HOST bit, options)
 *
 * where the native table's own `options` are the lines behind ENGINE_OPTIONS, and MOCK_CAPS what
 * native->caps adds at best.
 */
#ifndef ENGINE_ENTRY_H
#define ENGINE_ENTRY_H

#include <string.h>

#include "backends/engine/args.h"
#include "backends/engine/config.h"
#include "backends/engine/native.h"

/* What every backend on the engine can do. */
#define ENGINE_CAPS                                                                                \
	(ESCROW_CAP_READ | ESCROW_CAP_WRITE | ESCROW_CAP_EVENT_FD | ESCROW_CAP_LEDGER |            \
	 ESCROW_CAP_TRANSFER_MT | ESCROW_CAP_LOOPBACK | ESCROW_CAP_INVITE_ANY | ESCROW_CAP_OFFER)

/* The slots, as in escrow/backend.h; open gets the backend's own table beside its arguments. */
escrow_status engine_open(const struct engine_backend *self, const struct escrow_open_args *args,
			  struct escrow_engine **out, struct escrow_error *error);
void engine_release(struct escrow_engine *engine);
escrow_status engine_query(struct escrow_engine *engine, struct escrow_limits *limits);
escrow_status engine_register_memory(struct escrow_engine *engine,
				     const struct escrow_region_args *args, uint64_t *region,
				     struct escrow_error *error);
escrow_status engine_deregister_memory(struct escrow_engine *engine, uint64_t region,
				       uint32_t flags);
escrow_status engine_invite(struct escrow_engine *engine, const struct escrow_invite_args *args,
			    void *buf, uint64_t *len);
escrow_status engine_connect(struct escrow_engine *engine, const struct escrow_peer_args *args,
			     uint64_t *peer, struct escrow_error *error);
escrow_status engine_disconnect(struct escrow_engine *engine, uint64_t peer, uint32_t flags);
escrow_status engine_peer_info(struct escrow_engine *engine, uint64_t peer,
			       struct escrow_peer_info *info);
escrow_status engine_grant(struct escrow_engine *engine, const struct escrow_grant_args *args,
			   uint64_t *grant, struct escrow_error *error);
escrow_status engine_export_grant(struct escrow_engine *engine, uint64_t grant, void *buf,
				  uint64_t *len);
escrow_status engine_revoke(struct escrow_engine *engine, uint64_t grant, uint32_t flags);
escrow_status engine_import_grant(struct escrow_engine *engine, uint64_t peer, const void *buf,
				  uint64_t len, uint64_t user, uint64_t *remote,
				  struct escrow_error *error);
escrow_status engine_forget_grant(struct escrow_engine *engine, uint64_t remote);
int32_t engine_transfer(struct escrow_engine *engine, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops);
escrow_status engine_cancel(struct escrow_engine *engine, uint64_t op, uint32_t flags);
int32_t engine_poll(struct escrow_engine *engine, struct escrow_event *events, uint32_t max,
		    uint32_t stride, uint32_t flags);
int32_t engine_event_fd(struct escrow_engine *engine);
escrow_status engine_arm(struct escrow_engine *engine, uint32_t flags);
escrow_status engine_quiesce(struct escrow_engine *engine, uint32_t flags);
escrow_status engine_resume(struct escrow_engine *engine, uint32_t flags);
escrow_status engine_drain(struct escrow_engine *engine, uint64_t peer, uint64_t deadline_ns,
			   uint32_t flags);
escrow_status engine_close(struct escrow_engine *engine, uint64_t deadline_ns, uint32_t mode);
int32_t engine_charges(struct escrow_engine *engine, struct escrow_charge *charges, uint32_t max,
		       uint32_t stride);
int32_t engine_records(struct escrow_engine *engine, uint64_t *cursor,
		       struct escrow_record *records, uint32_t max, uint32_t stride);
const void *engine_get_extension(struct escrow_engine *engine, const char *id);

/* struct escrow_rails.list, with the backend's own table. */
int32_t engine_list_rails(const struct engine_backend *self, const struct escrow_open_args *args,
			  struct escrow_rail *rails, uint32_t max, uint32_t stride,
			  struct escrow_error *error);

/*
 * The entry, pure: checks *hello, chooses the revision and returns the descriptor, or NULL and
 * *error.
 */
const struct escrow_backend *engine_entry(const struct escrow_backend *descriptor,
					  const struct escrow_hello *hello,
					  struct escrow_error *error);

/* Are all services there?  *host is a copy, with what it lacks as zero. */
escrow_status entry_check_host(const struct escrow_host *from, struct escrow_host *host,
			       struct escrow_error *error);

/* The one exported symbol of a backend. */
#define ENGINE_EXPORT __attribute__((visibility("default")))
ENGINE_EXPORT const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,
								  struct escrow_error *error);

/* own_caps: what the native table may add; kinds: bits of memory kinds, at best. */
#define ENGINE_BACKEND(self, name, text, own_caps, kinds, opts)                                    \
	static escrow_status open_self(const struct escrow_open_args *args,                        \
				       struct escrow_engine **out, struct escrow_error *error)     \
	{                                                                                          \
		return engine_open(self, args, out, error);                                        \
	}                                                                                          \
	static int32_t list_self(const struct escrow_open_args *args, struct escrow_rail *rails,   \
				 uint32_t max, uint32_t stride, struct escrow_error *error)        \
	{                                                                                          \
		return engine_list_rails(self, args, rails, max, stride, error);                   \
	}                                                                                          \
	static const struct escrow_rails self_rails = {.size = sizeof(struct escrow_rails),        \
						       .list = list_self};                         \
	static const void *extension_self(struct escrow_engine *e, const char *id)                 \
	{                                                                                          \
		if (id && strcmp(id, ESCROW_RAILS_ID) == 0)                                        \
			return (self)->native->list_rails ? &self_rails : NULL;                    \
		return engine_get_extension(e, id);                                                \
	}                                                                                          \
	static const struct escrow_ops self_ops = {                                                \
		.size = sizeof(struct escrow_ops),                                                 \
		.release = engine_release,                                                         \
		.open = open_self,                                                                 \
		.query = engine_query,                                                             \
		.register_memory = engine_register_memory,                                         \
		.deregister_memory = engine_deregister_memory,                                     \
		.invite = engine_invite,                                                           \
		.connect = engine_connect,                                                         \
		.disconnect = engine_disconnect,                                                   \
		.peer_info = engine_peer_info,                                                     \
		.grant = engine_grant,                                                             \
		.export_grant = engine_export_grant,                                               \
		.revoke = engine_revoke,                                                           \
		.import_grant = engine_import_grant,                                               \
		.forget_grant = engine_forget_grant,                                               \
		.transfer = engine_transfer,                                                       \
		.cancel = engine_cancel,                                                           \
		.poll = engine_poll,                                                               \
		.event_fd = engine_event_fd,                                                       \
		.arm = engine_arm,                                                                 \
		.quiesce = engine_quiesce,                                                         \
		.resume = engine_resume,                                                           \
		.drain = engine_drain,                                                             \
		.close = engine_close,                                                             \
		.charges = engine_charges,                                                         \
		.records = engine_records,                                                         \
		.get_extension = extension_self,                                                   \
	};                                                                                         \
	static const struct escrow_backend self_descriptor = {                                     \
		.size = sizeof(struct escrow_backend),                                             \
		.revision = ENGINE_REVISION,                                                       \
		.id = name,                                                                        \
		.version = text,                                                                   \
		.residency = ESCROW_RESIDENCY_STAYS,                                               \
		.caps = ENGINE_CAPS | (own_caps),                                                  \
		.memory_kinds = (kinds),                                                           \
		.options = opts,                                                                   \
		.noptions = sizeof(opts) / sizeof((opts)[0]),                                      \
		.options_stride = sizeof((opts)[0]),                                               \
		.ops = &self_ops,                                                                  \
	};                                                                                         \
	const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,      \
							    struct escrow_error *error)            \
	{                                                                                          \
		return engine_entry(&self_descriptor, hello, error);                               \
	}

#endif
