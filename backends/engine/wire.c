/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "backends/engine/args.h"

static const uint8_t check_key[16] = "escrow wire 1 ck";

/* ---- Bytes ------------------------------------------------------------------------------------- */
struct cursor {
	uint8_t *at;
};

static void put(struct cursor *c, uint64_t v, unsigned int bytes)
{
	while (bytes--) {
		*c->at++ = (uint8_t)v;
		v >>= 8;
	}
}

static void put_bytes(struct cursor *c, const void *from, unsigned int n)
{
	memcpy(c->at, from, n);
	c->at += n;
}

struct reader {
	const uint8_t *at;
};

static uint64_t get(struct reader *r, unsigned int bytes)
{
	uint64_t v = 0;
	unsigned int i;

	for (i = 0; i < bytes; i++)
		v |= (uint64_t)*r->at++ << (8 * i);
	return v;
}

static void get_bytes(struct reader *r, void *to, unsigned int n)
{
	memcpy(to, r->at, n);
	r->at += n;
}

/* ---- SipHash-2-4 ---------------------------------------------------------------------------------- */
static uint64_t rotl(uint64_t v, unsigned int n)
{
	return v << n | v >> (64 - n);
}

static void sip_rounds(uint64_t v[4], unsigned int n)
{
	while (n--) {
		v[0] += v[1];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[0] = rotl(v[0], 32);
		v[2] += v[3];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[2] = rotl(v[2], 32);
	}
}

uint64_t wire_siphash(const uint8_t key[16], const void *data, uint64_t len)
{
	struct reader k = {key}, d = {data};
	uint64_t k0 = get(&k, 8), k1 = get(&k, 8), m, i;
	uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
			 k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};

	for (i = 0; i + 8 <= len; i += 8) {
		m = get(&d, 8);
		v[3] ^= m;
		sip_rounds(v, 2);
		v[0] ^= m;
	}
	m = len << 56 | get(&d, (unsigned int)(len - i));
	v[3] ^= m;
	sip_rounds(v, 2);
	v[0] ^= m;
	v[2] ^= 0xff;
	sip_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int wire_random(void *out, uint64_t len)
{
	uint8_t *at = out;
	ssize_t n;

	while (len) {
		n = getrandom(at, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		at += n;
		len -= (uint64_t)n;
	}
	return 0;
}

uint32_t wire_fold(const uint8_t incarnation[16])
{
	return (uint32_t)wire_siphash(check_key, incarnation, 16);
}

/* ---- Blobs: magic 8, revision 2, zero 2, length 4, body, check 8 ------------------------------------ */
#define BLOB_HEAD 16u
#define BLOB_TAIL 8u

static void blob_put(const char magic[9], uint8_t *buf, uint32_t len)
{
	struct cursor c = {buf};

	put_bytes(&c, magic, 8);
	put(&c, WIRE_REVISION, 2);
	put(&c, 0, 2);
	put(&c, len, 4);
	c.at = buf + len - BLOB_TAIL;
	put(&c, wire_siphash(check_key, buf, len - BLOB_TAIL), 8);
}

static escrow_status blob_get(const char *what, const char magic[9], const uint8_t *buf,
			      uint64_t len, struct escrow_error *error)
{
	struct reader r, check;
	uint32_t revision, zero, length;

	if (!buf || len < BLOB_HEAD + BLOB_TAIL)
		return args_fail(error, ESCROW_E_INVALID, "%s: %llu bytes, at least %u are needed",
				 what, (unsigned long long)len, BLOB_HEAD + BLOB_TAIL);
	if (memcmp(buf, magic, 8) != 0)
		return args_fail(error, ESCROW_E_INVALID, "%s: these bytes are something else",
				 what);
	r.at = buf + 8;
	revision = (uint32_t)get(&r, 2);
	zero = (uint32_t)get(&r, 2);
	length = (uint32_t)get(&r, 4);
	if (length != len)
		return args_fail(error, ESCROW_E_INVALID, "%s: %llu bytes, but it says %u", what,
				 (unsigned long long)len, length);
	check.at = buf + len - BLOB_TAIL;
	if (get(&check, 8) != wire_siphash(check_key, buf, len - BLOB_TAIL))
		return args_fail(error, ESCROW_E_INVALID, "%s: altered bytes", what);
	if (revision != WIRE_REVISION || zero)
		return args_fail(error, ESCROW_E_REVISION,
				 "%s: of wire revision %u, this engine speaks %u", what, revision,
				 WIRE_REVISION);
	return ESCROW_OK;
}

/* ---- Invitations --------------------------------------------------------------------------------------- */
#define INVITATION_MAGIC "ESCROWiv"
#define INVITATION_FIXED (16u + 16u + 8u + 4u + 4u + 4u + 32u)

uint32_t wire_invitation_bytes(uint32_t nrails)
{
	return BLOB_HEAD + INVITATION_FIXED + nrails * NATIVE_ADDRESS_BYTES + BLOB_TAIL;
}

void wire_invitation_put(const struct wire_invitation *in, uint8_t *buf)
{
	struct cursor c = {buf + BLOB_HEAD};
	uint32_t i;

	put_bytes(&c, in->incarnation, 16);
	put_bytes(&c, in->secret, 16);
	put(&c, in->ticket, 8);
	put(&c, in->flags, 4);
	put(&c, in->nrails, 4);
	put(&c, in->nlanes, 4);
	put_bytes(&c, in->backend, 32);
	for (i = 0; i < in->nrails; i++)
		put_bytes(&c, in->address[i], NATIVE_ADDRESS_BYTES);
	blob_put(INVITATION_MAGIC, buf, wire_invitation_bytes(in->nrails));
}

escrow_status wire_invitation_get(const uint8_t *buf, uint64_t len, const char *backend,
				  struct wire_invitation *out, struct escrow_error *error)
{
	escrow_status st = blob_get("invitation", INVITATION_MAGIC, buf, len, error);
	struct reader r;
	uint32_t i;

	if (st < 0)
		return st;
	r.at = buf + BLOB_HEAD;
	if (len < wire_invitation_bytes(1))
		return args_fail(error, ESCROW_E_INVALID, "invitation: too short");
	memset(out, 0, sizeof(*out));
	get_bytes(&r, out->incarnation, 16);
	get_bytes(&r, out->secret, 16);
	out->ticket = get(&r, 8);
	out->flags = (uint32_t)get(&r, 4);
	out->nrails = (uint32_t)get(&r, 4);
	out->nlanes = (uint32_t)get(&r, 4);
	get_bytes(&r, out->backend, 32);
	out->backend[31] = 0;
	if (out->nrails == 0 || out->nrails > NATIVE_MAX_RAILS ||
	    len != wire_invitation_bytes(out->nrails))
		return args_fail(error, ESCROW_E_INVALID,
				 "invitation: %u rails; 1 to %u are allowed", out->nrails,
				 NATIVE_MAX_RAILS);
	if (out->nlanes == 0 || out->nlanes > 16 || (out->flags & ~ESCROW_INVITE_ANY))
		return args_fail(error, ESCROW_E_INVALID, "invitation: %u lanes, flags 0x%x",
				 out->nlanes, out->flags);
	if (strcmp(out->backend, backend) != 0)
		return args_fail(error, ESCROW_E_INVALID,
				 "invitation: of backend \"%s\", this one is \"%s\"", out->backend,
				 backend);
	for (i = 0; i < out->nrails; i++)
		get_bytes(&r, out->address[i], NATIVE_ADDRESS_BYTES);
	return ESCROW_OK;
}

/* ---- Grants ------------------------------------------------------------------------------------------------ */
#define GRANT_MAGIC "ESCROWgr"
#define GRANT_FIXED (16u + 16u + 4u * 8u + 3u * 4u)

uint32_t wire_grant_bytes(uint32_t nkeys)
{
	return BLOB_HEAD + GRANT_FIXED + nkeys * 8 + BLOB_TAIL;
}

void wire_grant_put(const struct wire_grant *in, uint8_t *buf)
{
	struct cursor c = {buf + BLOB_HEAD};
	uint32_t i;

	put_bytes(&c, in->owner, 16);
	put_bytes(&c, in->grantee, 16);
	put(&c, in->epoch, 8);
	put(&c, in->id, 8);
	put(&c, in->addr, 8);
	put(&c, in->length, 8);
	put(&c, in->rights, 4);
	put(&c, in->flags, 4);
	put(&c, in->nkeys, 4);
	for (i = 0; i < in->nkeys; i++) {
		put(&c, in->keys[i], 4);
		put(&c, in->epochs[i], 4);
	}
	blob_put(GRANT_MAGIC, buf, wire_grant_bytes(in->nkeys));
}

escrow_status wire_grant_get(const uint8_t *buf, uint64_t len, struct wire_grant *out,
			     struct escrow_error *error)
{
	escrow_status st = blob_get("grant", GRANT_MAGIC, buf, len, error);
	struct reader r;
	uint32_t i;

	if (st < 0)
		return st;
	r.at = buf + BLOB_HEAD;
	if (len < wire_grant_bytes(0))
		return args_fail(error, ESCROW_E_INVALID, "grant: too short");
	get_bytes(&r, out->owner, 16);
	get_bytes(&r, out->grantee, 16);
	out->epoch = get(&r, 8);
	out->id = get(&r, 8);
	out->addr = get(&r, 8);
	out->length = get(&r, 8);
	out->rights = (uint32_t)get(&r, 4);
	out->flags = (uint32_t)get(&r, 4);
	out->nkeys = (uint32_t)get(&r, 4);
	if (out->nkeys > WIRE_MAX_KEYS || len != wire_grant_bytes(out->nkeys) ||
	    (out->flags & ~(WIRE_GRANT_OFFER | WIRE_GRANT_PASSIVE)) ||
	    (out->nkeys == 0) != ((out->flags & WIRE_GRANT_OFFER) != 0))
		return args_fail(error, ESCROW_E_INVALID, "grant: %u keys, flags 0x%x", out->nkeys,
				 out->flags);
	if (out->length == 0 || out->addr + out->length < out->addr)
		return args_fail(error, ESCROW_E_INVALID, "grant: a range that is empty or wraps");
	if (!out->rights || (out->rights & ~(ESCROW_MAY_READ | ESCROW_MAY_WRITE)))
		return args_fail(error, ESCROW_E_INVALID, "grant: rights 0x%x", out->rights);
	for (i = 0; i < out->nkeys; i++) {
		out->keys[i] = (uint32_t)get(&r, 4);
		out->epochs[i] = (uint32_t)get(&r, 4);
	}
	return ESCROW_OK;
}

/* ---- Private data -------------------------------------------------------------------------------------------- */
#define HELLO_MAGIC 0xe5c1u
#define HELLO_BODY 52u

void wire_hello_put(const struct wire_hello *in, uint8_t buf[NATIVE_PRIVATE_BYTES])
{
	struct cursor c = {buf};

	put(&c, HELLO_MAGIC, 2);
	put(&c, WIRE_REVISION, 1);
	put(&c, in->kind, 1);
	put(&c, in->rail, 1);
	put(&c, in->lane, 1);
	put(&c, in->nrails, 1);
	put(&c, in->nlanes, 1);
	put(&c, in->kind == WIRE_REJOIN ? in->set : in->recv_depth, 4);
	put(&c, in->epoch, 4);
	put_bytes(&c, in->incarnation, 16);
	put(&c, in->ticket, 4);
	put(&c, in->mark, 4);
	put(&c, in->proof, 8);
	put(&c, in->kind == WIRE_REJECT ? (uint32_t)in->reason : in->target, 4);
	put(&c, (uint32_t)wire_siphash(check_key, buf, HELLO_BODY), 4);
}

/* Longer is legal: rdma_cm pads private data with zeros (rdma_get_cm_event(3)). */
escrow_status wire_hello_get(const uint8_t *buf, uint64_t len, struct wire_hello *out)
{
	struct reader r = {buf}, check;
	uint32_t last;

	if (!buf || len < NATIVE_PRIVATE_BYTES || get(&r, 2) != HELLO_MAGIC)
		return ESCROW_E_INVALID;
	check.at = buf + HELLO_BODY;
	if (get(&check, 4) != (uint32_t)wire_siphash(check_key, buf, HELLO_BODY))
		return ESCROW_E_INVALID;
	if (get(&r, 1) != WIRE_REVISION)
		return ESCROW_E_REVISION;
	memset(out, 0, sizeof(*out));
	out->kind = (uint8_t)get(&r, 1);
	out->rail = (uint8_t)get(&r, 1);
	out->lane = (uint8_t)get(&r, 1);
	out->nrails = (uint8_t)get(&r, 1);
	out->nlanes = (uint8_t)get(&r, 1);
	last = (uint32_t)get(&r, 4);
	if (out->kind != WIRE_REJOIN && last > UINT16_MAX)
		return ESCROW_E_INVALID;
	out->recv_depth = (uint16_t)last;
	out->set = last;
	out->epoch = (uint32_t)get(&r, 4);
	get_bytes(&r, out->incarnation, 16);
	out->ticket = get(&r, 4);
	out->mark = (uint32_t)get(&r, 4);
	out->proof = get(&r, 8);
	last = (uint32_t)get(&r, 4);
	out->target = last;
	out->reason = (int32_t)last;
	if (out->kind < WIRE_REQUEST || out->kind > WIRE_REJOIN || out->nrails == 0 ||
	    out->nrails > NATIVE_MAX_RAILS || out->nlanes == 0 || out->nlanes > 16 ||
	    out->rail >= out->nrails || out->lane >= out->nlanes || out->epoch == 0)
		return ESCROW_E_INVALID;
	return ESCROW_OK;
}

uint64_t wire_proof(const uint8_t secret[16], const uint8_t target[16],
		    const struct wire_hello *request)
{
	uint8_t text[16 + 16 + 4 + 2 + 8 + 4];
	struct cursor c = {text};

	put_bytes(&c, target, 16);
	put_bytes(&c, request->incarnation, 16);
	put(&c, request->epoch, 4);
	put(&c, request->rail, 1);
	put(&c, request->lane, 1);
	put(&c, request->ticket, 8);
	put(&c, request->mark, 4);
	return wire_siphash(secret, text, sizeof(text));
}

/* ---- Control messages ------------------------------------------------------------------------------------------ */
#define MESSAGE_MAGIC 0x6d637365u /* "escm" */

void wire_message_put(const struct wire_message *in, uint8_t *buf)
{
	struct cursor c = {buf};

	put(&c, MESSAGE_MAGIC, 4);
	put(&c, WIRE_REVISION, 1);
	put(&c, in->type, 1);
	put(&c, in->length, 2);
	put(&c, in->credits, 4);
	put(&c, in->rail, 1);
	put(&c, in->epoch, 3);
	put(&c, in->seq, 4);
	put(&c, in->ack, 4);
	put(&c, in->a, 8);
	put(&c, in->b, 8);
	put(&c, wire_siphash(check_key, buf, WIRE_MESSAGE_HEADER - 8), 8);
}

escrow_status wire_message_get(const uint8_t *buf, uint64_t len, struct wire_message *out)
{
	struct reader r = {buf}, check;

	if (len < WIRE_MESSAGE_HEADER || get(&r, 4) != MESSAGE_MAGIC)
		return ESCROW_E_INVALID;
	check.at = buf + WIRE_MESSAGE_HEADER - 8;
	if (get(&check, 8) != wire_siphash(check_key, buf, WIRE_MESSAGE_HEADER - 8))
		return ESCROW_E_INVALID;
	if (get(&r, 1) != WIRE_REVISION)
		return ESCROW_E_REVISION;
	out->type = (uint8_t)get(&r, 1);
	out->length = (uint16_t)get(&r, 2);
	out->credits = (uint32_t)get(&r, 4);
	out->rail = (uint8_t)get(&r, 1);
	out->epoch = (uint32_t)get(&r, 3);
	out->seq = (uint32_t)get(&r, 4);
	out->ack = (uint32_t)get(&r, 4);
	out->a = get(&r, 8);
	out->b = get(&r, 8);
	if (out->rail >= NATIVE_MAX_RAILS || out->type < WIRE_HELLO ||
	    out->type >= WIRE_MESSAGE_TYPES || out->length != len - WIRE_MESSAGE_HEADER)
		return ESCROW_E_INVALID;
	return ESCROW_OK;
}
