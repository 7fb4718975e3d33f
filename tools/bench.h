/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow bench: two processes, as in the demo (tools/demo.h); the source lends memory, the requester
 * reads and writes it by the load of bench-load.h and tells how fast.
 *
 * A sweep is all combinations of the lists.  For each number of rails and lanes the engines are
 * opened anew, a session; the points of a session share them.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include "tools/bench-load.h"
#include "tools/demo.h"

#define BENCH_MAX_VALUES 64u
#define BENCH_MAX_REPEATS 99u

struct bench_list {
	guint n;
	guint64 value[BENCH_MAX_VALUES];
};

enum bench_unit { BENCH_GB, BENCH_GIB, BENCH_GBIT };
enum bench_format { BENCH_TABLE, BENCH_CSV, BENCH_JSON };

struct bench_options {
	struct demo_settings set; /* backend, settings, hugepages */
	struct bench_list ops;    /* BENCH_READ... */
	struct bench_list sizes, batches, windows, threads;
	struct bench_list lanes, rails; /* 0: the backend's default */
	struct bench_list cpus;         /* none: threads are not bound */
	guint64 area;                   /* bytes that are read, and as many that are written */
	double seconds;                 /* of a point; 0: ops of each thread count */
	gint64 iterations;
	gint repeats;
	gboolean check, progress, baseline;
	const char *plot;  /* a folder, or NULL */
	const char *other; /* where the source is; NULL: on this machine */
	enum bench_unit unit;
	enum bench_format format;
};

/* Of the repeats of a point. */
struct bench_ratio {
	double median, low, high; /* 0: there is none */
};

/* One point, measured. */
struct bench_row {
	guint64 rails, lanes;
	guint64 connections; /* as the ledger counts them; 0: the backend has none */
	struct bench_work work;
	struct bench_result result; /* of all repeats */
	struct bench_result base;   /* the same of the baseline */
	struct bench_ratio speed;   /* to the baseline's, and that of the median latency */
	struct bench_ratio latency;
};

/* ---- bench-options.c: each complains, naming the value and what is allowed, and returns false ------- */
struct bench_range {
	const char *option;
	const char *example; /* of a list; NULL: one value is meant */
	guint64 low, high;
};

/* "64,4K,1M", and "1-8" for 1,2,4,8: K, M and G are powers of 1024. */
bool bench_list_parse(const struct bench_range *range, const char *text, struct bench_list *list);
/* One word, or words, of a table, by their place in it. */
bool bench_word_parse(const char *option, const char *text, const char *const *table,
		      guint64 *place);
bool bench_words_parse(const char *option, const char *text, const char *const *table,
		       struct bench_list *list);
extern const char *const bench_op_names[]; /* by BENCH_READ... */
extern const char *const bench_unit_names[];

/* ---- bench-source.c ----------------------------------------------------------------------------------- */
/* What DEMO_SESSION carries: the requester decides for both ends. */
struct bench_session {
	uint64_t payload;
	uint32_t rails, lanes;
	uint32_t hugepages;
	uint32_t reserved0;
};

/* Serves sessions until the requester is gone. */
bool bench_source(const struct demo_settings *set, int channel);
/* The settings of a session: those given, and the numbers of rails and lanes.  g_strfreev. */
char **bench_settings(char *const *settings, guint64 rails, guint64 lanes);
/* Fills, or checks, each block of the range that is written or read, by a rule of its own. */
void bench_fill(struct demo_end *end, const struct bench_work *work, bool write, uint64_t number);
bool bench_check(const struct demo_end *end, const struct bench_work *work, bool write,
		 uint64_t number);

/* ---- bench-requester.c -------------------------------------------------------------------------------- */
/* A program that does the same load on bare verbs, beside one end; pid 0: none. */
struct bench_raw {
	GPid pid;
	int channel;
};

/* What it is told first, the same at both ends but for the devices. */
struct bench_raw_args {
	uint32_t connections, rails; /* rails 0: all */
	uint32_t depth, hugepages;
	uint64_t bytes;
	char devices[256]; /* as rdma.rails names them; empty: all */
};

struct bench_requester {
	const struct bench_options *o;
	struct demo_end end;
	struct demo_settings set; /* of this session */
	struct demo_message *message;
	struct bench_raw raw;
	char *devices; /* of this end, for the report */
	uint64_t connections;
	uint64_t number;      /* of points that were checked */
	char **configuration; /* of the first session, for the report */
};

bool bench_session_open(struct bench_requester *r, guint64 rails, guint64 lanes);
/* Measures once and adds to *result; false: complained, and the session can only be abandoned. */
bool bench_session_point(struct bench_requester *r, const struct bench_work *work,
			 struct bench_result *result);
bool bench_session_close(struct bench_requester *r);
bool bench_session_abandon(struct bench_requester *r);

/* ---- bench-base.c: what the same load costs without Escrow ------------------------------------------------- */
bool bench_base_open(struct bench_requester *r);
/* As bench_session_point. */
bool bench_base_point(struct bench_requester *r, const struct bench_work *work,
		      struct bench_result *result);

/* ---- bench-raw.c ------------------------------------------------------------------------------------------- */
/* Starts a program here and, through the source, one there, and connects them. */
bool bench_raw_pair(struct bench_requester *r);
bool bench_raw_point(struct bench_requester *r, const struct bench_work *work,
		     struct bench_result *result);
/* The source's part of bench_raw_pair: m is what it was asked. */
bool bench_raw_answer(struct bench_raw *raw, const struct demo_settings *set, int channel,
		      struct demo_message *m);
void bench_raw_stop(struct bench_raw *raw);

/* ---- bench-sweep.c ------------------------------------------------------------------------------------- */
/* All of it; rows (struct bench_row) are told as they come and are left in the array. */
bool bench_sweep(struct bench_requester *r, GPtrArray *rows);

/* ---- bench-report.c, bench-json.c ----------------------------------------------------------------------- */
double bench_speed(const struct bench_options *o, const struct bench_result *result);
/* Millions of ops a second; microseconds of CPU for a GiB. */
double bench_mops(const struct bench_result *result);
double bench_cpu(const struct bench_result *result);
/* The whole configuration as pairs of texts, name and value, then NULL; g_strfreev. */
char **bench_configuration(const struct bench_requester *r);
void bench_report_head(const struct bench_requester *r);
void bench_report_row(const struct bench_options *o, const struct bench_row *row);
void bench_report_json(const struct bench_requester *r, const GPtrArray *rows, bool ok);

/* ---- bench-plot.c: each complains and returns false ------------------------------------------------------ */
/* Makes the folder, and sees that gnuplot is there. */
bool bench_plot_ready(const char *folder);
bool bench_plot(const struct bench_options *o, const GPtrArray *rows, const char *folder);

#endif
