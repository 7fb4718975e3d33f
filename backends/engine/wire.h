/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire.h - all bytes that leave the process: invitations, private data of connection requests,
 * exported grants, control messages.  Little endian, fixed layout, a check over everything.
 *
 * Pure functions; any thread.  A reader takes any bytes of any length and believes nothing: magic,
 * revision, lengths, counts and the check are looked at before a value is used.  The check is no
 * signature: what proves that a peer was invited is the ticket.
 */
#ifndef ENGINE_WIRE_H
#define ENGINE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/engine/native.h"

#define WIRE_REVISION 3u
#define WIRE_MAX_KEYS 256u /* rails x lanes */

/* ---- Invitations ------------------------------------------------------------------------------ */
struct wire_invitation {
	uint8_t incarnation[16];
	uint8_t secret[16];
	uint64_t ticket;
	uint32_t flags; /* ESCROW_INVITE_ANY */
	uint32_t nrails;
	uint32_t nlanes;
	uint32_t reserved0;
	char backend[32]; /* whose invitation this is: id of the backend */
	uint8_t address[NATIVE_MAX_RAILS][NATIVE_ADDRESS_BYTES];
};

/* Bytes that `nrails` rails need. */
uint32_t wire_invitation_bytes(uint32_t nrails);
void wire_invitation_put(const struct wire_invitation *in, uint8_t *buf);
/* E_INVALID (truncated, altered, foreign), E_REVISION. */
escrow_status wire_invitation_get(const uint8_t *buf, uint64_t len, const char *backend,
				  struct wire_invitation *out, struct escrow_error *error);

/* ---- Exported grants ---------------------------------------------------------------------------- */
#define WIRE_GRANT_OFFER 1u
#define WIRE_GRANT_PASSIVE 2u /* it was lent to a peer that is the owner's passive end */

struct wire_grant {
	uint8_t owner[16];
	uint8_t grantee[16]; /* zero for an offer */
	uint64_t epoch;      /* 0 for an offer */
	uint64_t id;
	uint64_t addr;
	uint64_t length;
	uint32_t rights;
	uint32_t flags;
	uint32_t nkeys;
	/* By connection index: the key (0 = none), and the connection's epoch that it is good for. */
	uint32_t keys[WIRE_MAX_KEYS];
	uint32_t epochs[WIRE_MAX_KEYS];
};

uint32_t wire_grant_bytes(uint32_t nkeys);
void wire_grant_put(const struct wire_grant *in, uint8_t *buf);
escrow_status wire_grant_get(const uint8_t *buf, uint64_t len, struct wire_grant *out,
			     struct escrow_error *error);

/* ---- Private data --------------------------------------------------------------------------------- */
/* REJOIN: a request for one connection of a set that is up, in place of one that ended. */
enum wire_hello_kind { WIRE_REQUEST = 1, WIRE_ACCEPT, WIRE_REJECT, WIRE_REJOIN };

struct wire_hello {
	uint8_t kind; /* enum wire_hello_kind */
	uint8_t rail, lane;
	uint8_t nrails, nlanes;
	uint16_t recv_depth;
	uint32_t set;   /* rejoin, instead of recv_depth: the epoch of the set */
	uint32_t epoch; /* of the connection; a rejoin's is a fresh one; reject: the last */
	uint8_t incarnation[16]; /* the sender's */
	uint64_t ticket;         /* 32 bits go over the wire */
	uint32_t
		mark; /* the sender's for this target, the same in all its requests, known to no other */
	uint64_t proof;  /* request, rejoin: wire_proof() */
	uint32_t target; /* request, rejoin: wire_fold() of the incarnation that is meant */
	int32_t reason;  /* reject: why, instead of target */
};

void wire_hello_put(const struct wire_hello *in, uint8_t buf[NATIVE_PRIVATE_BYTES]);
escrow_status wire_hello_get(const uint8_t *buf, uint64_t len, struct wire_hello *out);

/*
 * What shows that the asker holds the ticket, or in a rejoin the secret of the set: bound to who asks,
 * whom, and for which connection.
 */
uint64_t wire_proof(const uint8_t secret[16], const uint8_t target[16],
		    const struct wire_hello *request);
uint32_t wire_fold(const uint8_t incarnation[16]);

/* ---- Control messages ------------------------------------------------------------------------------ */
enum wire_message_type {
	WIRE_HELLO = 1, /* a, b: the secret of the set; payload: the engine's name */
	WIRE_CREDIT,    /* only gives back credits */
	WIRE_OFFER_ASK, /* a: the offer, b: the asker's number, not 0; at most WIRE_ASKS without an answer */
	WIRE_OFFER_ANSWER, /* a: status, b: the asker's number; payload: a grant */
	WIRE_OFFER_RETURN, /* a: the grant that the asker forgets */
	WIRE_NOTE,         /* a: total bytes, b: offset; payload: a piece */
	WIRE_NOTE_TAKEN,   /* a: how many messages were taken since the last one */
	WIRE_LOST,         /* a: index of a connection that is over, b: its epoch */
	WIRE_RAIL,         /* a: a rail of ours, b: 1 = up, 0 = down */
	/* a: a grant, b: epoch of a connection that came back << 32 | the grant's key on it; 0: it has gone */
	WIRE_KEY,
	WIRE_KEY_ASK, /* a: a grant of which the asker lacks keys */
	WIRE_UP,      /* the sender is up: offers may be asked for, notes may be sent */
	/* a: index of a connection, b: its epoch | a number << 32: the sender begins to renew it, or still is at
	 * it, or (number 0) wants the other end to */
	WIRE_DRAIN,
	WIRE_DRAINED,  /* the same: the sender has nothing on it any more */
	WIRE_DRAIN_NO, /* the same: it goes on as it is */
	WIRE_MESSAGE_TYPES
};

#define WIRE_MESSAGE_HEADER 48u
#define WIRE_ASKS 64u

struct wire_message {
	uint8_t type;
	uint8_t rail;     /* on whose first connection the credits are */
	uint16_t length;  /* of the payload */
	uint32_t credits; /* receives that were posted again there, all in all, modulo 2^32 */
	uint32_t epoch;   /* of that connection, 24 bits */
	uint32_t seq;     /* its number; a CREDIT has none */
	uint32_t ack;     /* the sender has dealt with all before this number */
	uint64_t a;
	uint64_t b;
};

/* The payload must already stand behind the header. */
void wire_message_put(const struct wire_message *in, uint8_t *buf);
escrow_status wire_message_get(const uint8_t *buf, uint64_t len, struct wire_message *out);

/* SipHash-2-4 (Aumasson, Bernstein 2012). */
uint64_t wire_siphash(const uint8_t key[16], const void *data, uint64_t len);
/* Random bytes of the kernel; 0 or errno. */
int wire_random(void *out, uint64_t len);

#endif
