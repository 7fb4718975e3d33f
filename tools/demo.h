/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow demo: two processes, a source and a requester.  The source lends a range of its memory; the
 * requester reads it and writes it through the backend; both ends check every byte and the guard
 * bytes around them, and at the end both ledgers must be empty.
 *
 * What the hosts have to tell each other (the invitation, the bytes of the grant, "check now") goes
 * over a socket pair, or TCP between
 * two machines: the host's own channel, which the backend never sees.
 */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include "plugin/escrow.h"

#define DEMO_GUARD 4096u
#define DEMO_GUARD_BYTE 0xa5

struct demo_settings {
	char *backend;
	char *op; /* "read", "write" or "both" */
	int parents;
	gint64 parent_bytes;
	int rounds;
	bool events;
	bool progress;
	bool second;     /* this machine's other end says what holds for both */
	bool hugepages;  /* back the payload with them */
	int wait_ms;     /* at most between two polls of an engine with a descriptor; 0: 50 */
	char **settings; /* "key=value" for the backend */
};

/* One end: its engine and its memory, guard bytes on both sides of the payload. */
struct demo_end {
	const struct demo_settings *set;
	const char *role;
	int channel;
	struct escrow_module *module;
	struct escrow_host_engine *engine;
	uint8_t *memory; /* guard, payload, guard */
	uint64_t payload;
	uint64_t region;
	uint64_t peer;
	uint64_t object; /* the grant (source) or the remote (requester) */
	bool opened;
};

/*
 * demo-device.c: the backend to run on where none was named; says on standard error why, if it is no
 * real device.  May start the program again (argv: its words), and so not return.  The caller frees.
 */
char *demo_choose_backend(char **argv, bool on_double);
/*
 * demo.c: starts a program, of which `channel` becomes descriptor DEMO_CHANNEL_FD; its process id, or
 * -1 and complained.  The other end on this machine is this program again, with the same words, this
 * backend and --source.
 */
#define DEMO_CHANNEL_FD 3
GPid demo_spawn(char *const *words, int channel);
GPid demo_start_source(char **argv, const char *backend, int channel);
/* Removes the folder in which the ends met on softverbs. */
void demo_leave_double(void);

/* ---- demo-channel.c: whole messages over a stream ------------------------------------------------ */

enum demo_word {
	DEMO_INVITATION,
	DEMO_GRANT,   /* source -> requester: it is of `number` bytes */
	DEMO_CHECK,   /* requester -> source: the payload now holds pattern `number` */
	DEMO_CHECKED, /* source -> requester: 1 right, 0 wrong */
	DEMO_REVOKE,  /* requester -> source: done with the grant */
	DEMO_REVOKED,
	DEMO_LEDGER,  /* source -> requester: its ledger as text, and whether it was empty */
	DEMO_SESSION, /* for `escrow bench`, see tools/bench.h */
	DEMO_FILL,
	DEMO_FILLED,
	DEMO_BASELINE, /* to, from and between the programs of tools/bench-raw.c */
	DEMO_HELLO,    /* the first over TCP, both ways: the sub-command */
	DEMO_FAILED,
};

/* What demo_receive and demo_await answer for no message. */
#define DEMO_GONE (-1)
#define DEMO_NONSENSE (-2)

struct demo_message {
	uint32_t word; /* enum demo_word */
	uint32_t len;
	uint64_t number;
	uint8_t bytes[65536];
};

bool demo_send(int fd, enum demo_word word, uint64_t number, const void *bytes, uint32_t len);
/* The other process has ended or closed, whatever it said before and was not read yet. */
bool demo_channel_gone(int fd);
/* 1 a message, 0 none yet, DEMO_GONE, DEMO_NONSENSE. */
int demo_receive(int fd, struct demo_message *message);
/* Waits for one while no engine has to be polled: 1, DEMO_GONE or DEMO_NONSENSE. */
int demo_await(int fd, struct demo_message *message);
/* What the other end did, for complaints: "is gone", "sent what is ..." */
const char *demo_end_did(int received);

/* ---- demo-tcp.c: the channel between two machines -------------------------------------------------- */
/* Is it HOST:PORT, of a port that there can be, or NULL?  Complains; asked before anything is begun. */
bool demo_place_good(const char *where, bool listens);
/* "HOST:PORT": waits for the other machine, or asks for it; the channel, or -1 and complained. */
int demo_listen(const char *where);
int demo_connect(const char *where);
/*
 * Both ends say first which sub-command they are, so that whoever else connected or was connected to
 * is told from an end that is only slow.  false: complained.
 */
bool demo_greet(int fd, const char *where);

/* ---- demo-wait.c: what is waited for is told, once, when it takes long ------------------------------ */
void demo_wait_begins(void);
void demo_wait_goes_on(const struct demo_end *end, const char *what);
/* The same for a message of this word; any that has no text of its own: what the other end asks for. */
void demo_hearing_goes_on(const struct demo_end *end, enum demo_word word);
/* demo_await for a message of this word; what comes may be another one. */
int demo_await_word(const struct demo_end *end, enum demo_word word, struct demo_message *message);
/* Waits for the end of the other end's process: its status, as wait tells it. */
int demo_reap(GPid other);

/* ---- demo-bytes.c -------------------------------------------------------------------------------- */
/* Fills / checks the payload by a rule that gives every byte of every pattern another value. */
void demo_fill(uint8_t *payload, uint64_t bytes, uint64_t pattern);
bool demo_check(const uint8_t *payload, uint64_t bytes, uint64_t pattern);

/* ---- demo-end.c: what both ends do ---------------------------------------------------------------- */
bool demo_guards_intact(const struct demo_end *end);

/* Loads the backend, having looked at it in a process of its own; on failure says why and returns false. */
bool demo_end_load(struct demo_end *end);
/* Loads the backend where that was not done yet, opens it and lends the memory; on failure says why and returns false. */
bool demo_end_open(struct demo_end *end);
/*
 * Polls once, sleeping on the engine's descriptor and the channel if so set; handles every event
 * with each.  false: the engine failed.
 */
bool demo_turn(struct demo_end *end, bool (*each)(struct demo_end *, const struct escrow_event *));
/* Waits for one event of this kind, and copies it to *event (NULL allowed). */
bool demo_wait(struct demo_end *end, uint16_t kind, struct escrow_event *event);
/* Waits for a message of this word. */
bool demo_hear(struct demo_end *end, enum demo_word word, struct demo_message *message);
/* Closes; true if the engine ended CLOSED and every charge went back to zero before. */
bool demo_end_close(struct demo_end *end);
/*
 * After a failure: closes what is open, waits for the proof or the quarantine, and says what is still
 * charged.  Returns false, for the caller to return.
 */
bool demo_end_abandon(struct demo_end *end);
/* The ledger of this process as text; the caller frees. */
char *demo_ledger(void);

/* ---- demo-source.c, demo-requester.c ---------------------------------------------------------------- */
struct demo_result {
	double read_seconds;
	double write_seconds;
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t ops;
	bool bytes_right;
	bool closed_clean;
	char *ledger; /* of the requester while it ran */
	char *source_ledger;
};

bool demo_source(struct demo_end *end);
/* Its parts, on an open end: invites and lends the payload; takes it back when DEMO_REVOKE was heard. */
bool demo_source_meet(struct demo_end *end, struct demo_message *m);
bool demo_source_part(struct demo_end *end);
/* The other end's: connects and imports; gives back and hears that it was taken. */
bool demo_requester_meet(struct demo_end *end, struct demo_message *m);
bool demo_requester_part(struct demo_end *end, struct demo_message *m);
bool demo_requester(struct demo_end *end, struct demo_result *result);

#endif
