/* SPDX-License-Identifier: BSD-2-Clause */
/* Children of the suite: started, limited, killed with all they started, and judged. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conform/trail.h"
#include "tools/conform.h"

#define ERR_BYTES_SHOWN 3000
#define RECORD_BYTES 65536

extern char **environ;

/* One child under way. */
struct job {
	struct conform_case *k; /* NULL: the place is free */
	pid_t pid;
	int pidfd;
	int records; /* read end of the verdict pipe */
	int trail;   /* memory shared with the child */
	int err;     /* memory file that takes its standard output and error */
	int64_t start_us;
	GString *text;
	bool timed_out;
};

static char **child_arguments(const struct conform *c, const char *id, int records, int trail)
{
	g_autoptr(GStrvBuilder) b = g_strv_builder_new();
	g_autofree char *line = g_strdup_printf(
		"--fd %d --trail %d --case %s --parent %d --limit %u --seed %" G_GUINT64_FORMAT,
		records, trail, id, (int)getpid(), c->timeout_ms, c->seed);
	g_auto(GStrv) words = g_strsplit(line, " ", -1);
	char **s;

	g_strv_builder_add(b, c->child);
	for (s = words; *s; s++)
		g_strv_builder_add(b, *s);
	for (s = c->settings; s && *s; s++) {
		g_strv_builder_add(b, "--set");
		g_strv_builder_add(b, *s);
	}
	if (c->with) {
		g_strv_builder_add(b, "--with");
		g_strv_builder_add(b, c->with);
	}
	g_strv_builder_add(b, c->path);
	return g_strv_builder_end(b);
}

#define CHILD_RECORDS 3
#define CHILD_TRAIL 4

/* Starts the child of job->k in a session of its own; 0 or an errno. */
static int start_child(const struct conform *c, struct job *j, int record_end)
{
	g_auto(GStrv) args = child_arguments(c, j->k->id, CHILD_RECORDS, CHILD_TRAIL);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", 0, 0);
	posix_spawn_file_actions_adddup2(&files, j->err, 1);
	posix_spawn_file_actions_adddup2(&files, j->err, 2);
	posix_spawn_file_actions_adddup2(&files, record_end, CHILD_RECORDS);
	posix_spawn_file_actions_adddup2(&files, j->trail, CHILD_TRAIL);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	rc = posix_spawn(&j->pid, c->child, &files, &attr, args, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return rc;
}

/* A descriptor from 16 up, so that the moves to 3 and 4 in the child overwrite none. */
static int high_fd(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);

	if (fd >= 0)
		close(fd);
	return high;
}

static bool job_start(const struct conform *c, struct job *j, struct conform_case *k,
		      GError **error)
{
	int pipe_fd[2] = {-1, -1};
	int rc = 0;

	memset(j, 0, sizeof(*j));
	j->k = k;
	j->trail = high_fd(memfd_create("trail", MFD_CLOEXEC));
	j->err = high_fd(memfd_create("err", MFD_CLOEXEC));
	if (j->trail < 0 || j->err < 0 || ftruncate(j->trail, sizeof(struct trail)) ||
	    pipe2(pipe_fd, O_CLOEXEC))
		rc = errno;
	j->records = high_fd(pipe_fd[0]);
	pipe_fd[1] = high_fd(pipe_fd[1]);
	if (!rc)
		rc = start_child(c, j, pipe_fd[1]);
	if (pipe_fd[1] >= 0)
		close(pipe_fd[1]);
	if (rc) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(rc), "%s: %s", c->child,
			    g_strerror(rc));
		return false;
	}
	fcntl(j->records, F_SETFL, O_NONBLOCK);
	j->pidfd = pidfd_open(j->pid, 0);
	j->text = g_string_new(NULL);
	j->start_us = g_get_monotonic_time();
	return true;
}

static void read_records(struct job *j)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(j->records, buf, sizeof(buf))) > 0)
		if (j->text->len < RECORD_BYTES)
			g_string_append_len(j->text, buf, n);
}

/* The trail and what the child wrote to standard error, for a case that did not pass. */
static char *job_detail(struct job *j)
{
	g_autoptr(GString) s = g_string_new(NULL);
	struct trail *t = mmap(NULL, sizeof(*t), PROT_READ, MAP_SHARED, j->trail, 0);
	char err[ERR_BYTES_SHOWN + 1];
	ssize_t n;
	uint32_t i;

	if (t != MAP_FAILED) {
		for (i = t->next > TRAIL_LINES ? t->next - TRAIL_LINES : 0; i < t->next; i++)
			g_string_append_printf(s, "%.*s\n", (int)TRAIL_WIDTH,
					       t->line[i % TRAIL_LINES]);
		munmap(t, sizeof(*t));
	}
	n = pread(j->err, err, ERR_BYTES_SHOWN, 0);
	if (n > 0) {
		err[n] = 0;
		g_string_append_printf(s, "standard error: %s\n", err);
	}
	return g_utf8_make_valid(s->str, (gssize)s->len);
}

static void set_result(struct conform_result *r, enum conform_verdict v, const char *clause,
		       const char *text)
{
	/* What is set may be what is there: copy before freeing. */
	char *new_clause = g_strdup(clause), *new_text = g_utf8_make_valid(text, -1);

	r->verdict = v;
	g_free(r->clause);
	g_free(r->text);
	r->clause = new_clause;
	r->text = new_text;
}

static enum conform_verdict verdict_of(const char *name)
{
	unsigned int v;

	for (v = 0; v < CONFORM_VERDICTS; v++)
		if (!strcmp(name, conform_verdict_name(v)))
			return v;
	return CONFORM_BROKEN;
}

/* Takes the child's records; returns true if a verdict was among them. */
static bool take_records(struct conform *c, struct job *j, bool probe)
{
	g_auto(GStrv) lines = g_strsplit(j->text->str, "\n", -1);
	struct conform_result *r = &j->k->result;
	bool found = false, warned = false;
	char **l;

	for (l = lines; *l; l++) {
		g_auto(GStrv) f = g_strsplit(*l, "\t", 4);
		guint n = g_strv_length(f);

		if (n == 3 && !strcmp(f[0], "I") && probe) {
			g_ptr_array_add(c->facts, g_strdup(f[1]));
			g_ptr_array_add(c->facts, g_strdup(f[2]));
		} else if (n >= 2 && !strcmp(f[0], "W")) {
			set_result(r, CONFORM_WARN, r->clause, f[1]);
			warned = true;
		} else if (n == 4 && !strcmp(f[0], "V") && !found) {
			found = true;
			if (!warned || strcmp(f[1], "PASS"))
				set_result(r, verdict_of(f[1]), f[2], f[3]);
		}
	}
	return found;
}

/* What the end of the process says; a verdict that was sent stands only if it ended well. */
static void judge_end(struct conform *c, struct job *j, int status, bool probe)
{
	g_autofree char *clause = g_strndup(j->k->clauses, strcspn(j->k->clauses, " "));
	struct conform_result *r = &j->k->result;
	g_autofree char *text = NULL;
	bool found;

	r->clause = g_strdup(clause);
	found = take_records(c, j, probe);
	if (j->timed_out)
		text = g_strdup_printf("no verdict within %u ms", c->timeout_ms);
	else if (WIFSIGNALED(status))
		text = g_strdup_printf("killed by signal %d (%s)%s", WTERMSIG(status),
				       g_strsignal(WTERMSIG(status)),
				       found ? ", after its verdict" : "");
	else if (!found && WEXITSTATUS(status) == 3)
		text = g_strdup("the child could not do its work");
	else if (!found)
		text = g_strdup_printf("ended without a verdict, exit status %d",
				       WEXITSTATUS(status));
	else if (WEXITSTATUS(status))
		text = g_strdup_printf("exit status %d after its verdict", WEXITSTATUS(status));
	if (text)
		set_result(r,
			   j->timed_out ? CONFORM_TIMEOUT
			   : !found && WIFEXITED(status) && WEXITSTATUS(status) == 3
				   ? CONFORM_BROKEN
				   : CONFORM_CRASH,
			   clause, text);
	if (r->verdict == CONFORM_PASS && r->ms * 2 > c->timeout_ms)
		set_result(r, CONFORM_WARN, clause, "took more than half of its time limit");
	if (r->verdict != CONFORM_PASS && r->verdict != CONFORM_SKIP)
		r->detail = job_detail(j);
}

/* What the child started and left behind: in its group, or adopted by us. */
static void kill_strays(const struct job *jobs, unsigned int njobs, const struct job *j)
{
	g_autofree char *path = g_strdup_printf("/proc/self/task/%d/children", (int)getpid());
	g_autofree char *text = NULL;
	g_auto(GStrv) pids = NULL;
	unsigned int i;
	char **p;

	kill(-j->pid, SIGKILL);
	while (waitpid(-j->pid, NULL, 0) > 0)
		;
	if (!g_file_get_contents(path, &text, NULL, NULL))
		return;
	pids = g_strsplit(text, " ", -1);
	for (p = pids; *p; p++) {
		pid_t pid = (pid_t)g_ascii_strtoll(*p, NULL, 10);
		bool ours = pid <= 0;

		for (i = 0; i < njobs; i++)
			ours |= jobs[i].k && jobs[i].pid == pid;
		if (ours)
			continue;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

static void job_finish(struct conform *c, struct job *jobs, unsigned int njobs, struct job *j,
		       bool probe)
{
	int status = 0;

	if (j->timed_out)
		kill(-j->pid, SIGKILL);
	while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR)
		;
	j->k->result.ms = (double)(g_get_monotonic_time() - j->start_us) / 1000.0;
	kill_strays(jobs, njobs, j);
	read_records(j);
	judge_end(c, j, status, probe);
	close(j->pidfd);
	close(j->records);
	close(j->trail);
	close(j->err);
	g_string_free(j->text, TRUE);
	j->k = NULL;
}

/* Waits until a child ends, writes or runs out of time, and deals with it. */
static void serve(struct conform *c, struct job *jobs, unsigned int njobs)
{
	struct pollfd fds[2 * 64];
	int64_t now = g_get_monotonic_time();
	int64_t next = now + 1000000;
	nfds_t n = 0;
	unsigned int i;

	for (i = 0; i < njobs; i++) {
		if (!jobs[i].k)
			continue;
		fds[n++] = (struct pollfd){.fd = jobs[i].pidfd, .events = POLLIN};
		fds[n++] = (struct pollfd){.fd = jobs[i].records, .events = POLLIN};
		next = MIN(next, jobs[i].start_us + (int64_t)c->timeout_ms * 1000);
	}
	poll(fds, n, (int)(MAX(next - now, 0) / 1000 + 1));
	now = g_get_monotonic_time();
	for (i = 0, n = 0; i < njobs; i++) {
		if (!jobs[i].k)
			continue;
		read_records(&jobs[i]);
		if (!(fds[n].revents & POLLIN) &&
		    now - jobs[i].start_us >= (int64_t)c->timeout_ms * 1000)
			jobs[i].timed_out = true;
		if (fds[n].revents & POLLIN || jobs[i].timed_out)
			job_finish(c, jobs, njobs, &jobs[i], false);
		else if (fds[n + 1].revents & POLLHUP)
			poll(NULL, 0, 1); /* its pipe is closed, the process still ends */
		n += 2;
	}
}

static void show_progress(const struct conform *c, guint next, unsigned int failed)
{
	if (c->progress)
		fprintf(stderr, "\r%u of %u cases, %u not passed ", next, c->cases->len, failed);
}

/* The next case that was selected and that a child runs; NULL: no more.  *next goes on behind it. */
static struct conform_case *next_case(struct conform *c, guint *next)
{
	while (*next < c->cases->len) {
		struct conform_case *k = g_ptr_array_index(c->cases, (*next)++);

		if (k->selected && !k->check)
			return k;
	}
	return NULL;
}

bool conform_run(struct conform *c, GError **error)
{
	struct job jobs[64] = {0};
	unsigned int njobs = CLAMP(c->jobs, 1, 64);
	unsigned int running = 0, i;
	guint next = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (next < c->cases->len || running) {
		for (i = 0; i < njobs; i++) {
			struct conform_case *k = jobs[i].k ? NULL : next_case(c, &next);

			if (k && !job_start(c, &jobs[i], k, error))
				return false;
		}
		for (i = 0, running = 0; i < njobs; i++)
			running += jobs[i].k != NULL;
		if (running)
			serve(c, jobs, njobs);
		for (i = 0, running = 0; i < njobs; i++)
			running += jobs[i].k != NULL;
		show_progress(c, next, conform_add_up(c).count[CONFORM_FAIL]);
	}
	if (c->progress)
		fprintf(stderr, "\r%60s\r", "");
	return true;
}

/* Where no case could begin: it is not loaded, it is no backend, or it opens no engine. */
static bool cannot_begin(const struct conform_result *r)
{
	return r->verdict == CONFORM_FAIL &&
	       (!strcmp(r->clause, "S0") || !strcmp(r->clause, "A1") || !strcmp(r->clause, "G1"));
}

static bool knows(const struct conform *c, const char *key)
{
	for (guint i = 0; i < c->facts->len; i += 2)
		if (!strcmp(g_ptr_array_index(c->facts, i), key))
			return true;
	return false;
}

/* Where its process ended or hung before there was an engine, so would that of each case.  NULL: it did not. */
static char *died_early(const struct conform *c, const struct conform_result *r)
{
	if ((r->verdict != CONFORM_CRASH && r->verdict != CONFORM_TIMEOUT) || knows(c, "caps"))
		return NULL;
	return g_strdup_printf("when %s: %s",
			       knows(c, "backend") ? "an engine is opened" : "it is loaded",
			       r->text);
}

char *conform_probe(struct conform *c)
{
	char id[] = "probe", clause[] = "G1";
	struct conform_case k = {.id = id, .clauses = clause};
	char *why = NULL;
	struct job j;

	if (!job_start(c, &j, &k, NULL))
		return NULL;
	while (!j.timed_out) {
		struct pollfd fd = {.fd = j.pidfd, .events = POLLIN};

		if (poll(&fd, 1, 100) > 0)
			break;
		read_records(&j);
		j.timed_out = g_get_monotonic_time() - j.start_us > (int64_t)c->timeout_ms * 1000;
	}
	job_finish(c, &j, 1, &j, true);
	why = cannot_begin(&k.result) ? g_strdup(k.result.text) : died_early(c, &k.result);
	if (k.result.verdict != CONFORM_PASS) {
		g_ptr_array_add(c->facts, g_strdup("probe"));
		g_ptr_array_add(c->facts,
				g_strdup_printf("%s: %s", conform_verdict_name(k.result.verdict),
						k.result.text ? k.result.text : ""));
	}
	conform_clear(&k.result);
	return why;
}
