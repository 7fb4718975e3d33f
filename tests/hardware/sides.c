/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hardware/sides.h"
#include "tools/json.h"

/* One of the two; source first. */
struct side {
	const char *role;
	char **reach; /* words before each command; none: this host */
	char *frozen;
	char *folder; /* on that host; NULL: that of the controller */
	char *locks;  /* NULL: the usual one */
	char *channel;
	char **identities; /* DEVICE=GUID */
	char **env;
	pid_t holder;
	int holding; /* its input; it ends with it */
};

struct sides {
	struct side side[2];
};

static const char *const roles[2] = {"source", "requester"};

/* ---- The profile -------------------------------------------------------------------------------------- */
static bool bad(const char *profile, const char *format, ...) G_GNUC_PRINTF(2, 3);
static bool bad(const char *profile, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "gate: %s: ", profile);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return false;
}

/* A word goes through the shell of the other host: nothing of it may mean anything there. */
static bool plain(const char *word)
{
	return g_regex_match_simple("^[A-Za-z0-9_./:=,@%+-]*$", word, 0, 0);
}

static bool read_words(GKeyFile *file, const char *profile, const char *role, const char *key,
		       char ***out)
{
	g_autofree char *text = g_key_file_get_string(file, role, key, NULL);
	g_auto(GStrv) words = NULL;

	*out = NULL;
	if (!text || !*g_strstrip(text))
		return true;
	words = g_strsplit_set(text, " ", -1);
	for (char **w = words; *w; w++)
		if (!plain(*w))
			return bad(profile, "[%s] %s: \"%s\": letters, digits and _./:=,@%%+- only",
				   role, key, *w);
	*out = g_steal_pointer(&words);
	return true;
}

static bool read_word(GKeyFile *file, const char *profile, const char *role, const char *key,
		      bool needed, char **out)
{
	*out = g_key_file_get_string(file, role, key, NULL);
	if (!*out && needed)
		return bad(profile, "[%s] %s is missing", role, key);
	if (*out && !plain(*out))
		return bad(profile, "[%s] %s: \"%s\": letters, digits and _./:=,@%%+- only", role,
			   key, *out);
	return true;
}

static bool known_keys(GKeyFile *file, const char *profile, const char *role)
{
	static const char *const known[] = {"reach",   "frozen", "folder",     "locks",
					    "channel", "env",    "identities", NULL};
	g_auto(GStrv) keys = g_key_file_get_keys(file, role, NULL, NULL);

	for (char **key = keys; key && *key; key++)
		if (!g_strv_contains(known, *key))
			return bad(profile,
				   "[%s] %s: no such key; reach, frozen, folder, locks, channel, "
				   "env and "
				   "identities are",
				   role, *key);
	return true;
}

static bool read_side(GKeyFile *file, const char *profile, struct side *s)
{
	if (!g_key_file_has_group(file, s->role))
		return bad(profile, "there is no group [%s]", s->role);
	if (!known_keys(file, profile, s->role) ||
	    !read_words(file, profile, s->role, "reach", &s->reach) ||
	    !read_words(file, profile, s->role, "env", &s->env) ||
	    !read_words(file, profile, s->role, "identities", &s->identities) ||
	    !read_word(file, profile, s->role, "frozen", true, &s->frozen) ||
	    !read_word(file, profile, s->role, "folder", false, &s->folder) ||
	    !read_word(file, profile, s->role, "locks", false, &s->locks) ||
	    !read_word(file, profile, s->role, "channel", true, &s->channel))
		return false;
	return (s->identities && g_strv_length(s->identities) == 2) ||
	       bad(profile, "[%s] identities: two are needed, DEVICE=GUID, one for each rail",
		   s->role);
}

/* ---- Commands on a host ----------------------------------------------------------------------------------- */
static void add_all(GPtrArray *words, char *const *more)
{
	for (; more && *more; more++)
		g_ptr_array_add(words, g_strdup(*more));
}

static void G_GNUC_PRINTF(2, 3) add(GPtrArray *words, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	g_ptr_array_add(words, g_strdup_vprintf(format, args));
	va_end(args);
}

static GPtrArray *side_words(const struct side *s, const char *what)
{
	GPtrArray *words = g_ptr_array_new_with_free_func(g_free);

	add_all(words, s->reach);
	add(words, "%s/side", s->frozen);
	add(words, "%s", what);
	if (s->locks)
		add(words, "--locks=%s", s->locks);
	return words;
}

static void add_identities(GPtrArray *words, const struct side *s)
{
	for (char **i = s->identities; *i; i++)
		add(words, "--identity=%s", *i);
}

/* *out is its output; *in its input if wanted, else that is empty. */
static pid_t spawn(GPtrArray *words, int *in, int *out)
{
	g_autoptr(GError) error = NULL;
	GPid pid = -1;

	g_ptr_array_add(words, NULL);
	if (!g_spawn_async_with_pipes(NULL, (char **)words->pdata, NULL,
				      G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL,
				      &pid, in, out, NULL, &error))
		fprintf(stderr, "gate: %s\n", error->message);
	return pid;
}

static char *read_to_end(int fd)
{
	g_autoptr(GString) text = g_string_new(NULL);
	char part[4096];
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			g_string_append_len(text, part, n);
	close(fd);
	return g_string_free(g_steal_pointer(&text), FALSE);
}

/* ---- Locks --------------------------------------------------------------------------------------------------- */
static bool same_host(const struct side *a, const struct side *b)
{
	g_autofree char *x = a->reach ? g_strjoinv(" ", a->reach) : g_strdup("");
	g_autofree char *y = b->reach ? g_strjoinv(" ", b->reach) : g_strdup("");

	return strcmp(x, y) == 0;
}

/* One holder for each host: two ends may be on the same RNICs. */
static bool hold(struct side *s, const struct side *also)
{
	GPtrArray *words = side_words(s, "hold");
	char said[5] = "";
	int out = -1;

	add_identities(words, s);
	for (char **i = also ? also->identities : NULL; i && *i; i++)
		if (!g_strv_contains((const char *const *)s->identities, *i))
			add(words, "--identity=%s", *i);
	s->holder = spawn(words, &s->holding, &out);
	g_ptr_array_unref(words);
	if (s->holder < 0)
		return false;
	fcntl(s->holding, F_SETFD, FD_CLOEXEC);
	if (read(out, said, 4) != 4 || strcmp(said, "held") != 0) {
		fprintf(stderr, "gate: the RNICs of the %s cannot be locked\n", s->role);
		close(out);
		return false;
	}
	close(out);
	return true;
}

struct sides *sides_open(const char *profile)
{
	g_autoptr(GKeyFile) file = g_key_file_new();
	g_autoptr(GError) error = NULL;
	struct sides *s = g_new0(struct sides, 1);
	bool same, good = true;

	if (!g_key_file_load_from_file(file, profile, G_KEY_FILE_NONE, &error)) {
		bad(profile, "%s", error->message);
		return NULL;
	}
	for (int i = 0; i < 2; i++) {
		s->side[i] = (struct side){.role = roles[i], .holder = -1, .holding = -1};
		good = good && read_side(file, profile, &s->side[i]);
	}
	if (!good)
		return NULL;
	same = same_host(&s->side[0], &s->side[1]);
	if (!hold(&s->side[0], same ? &s->side[1] : NULL) || (!same && !hold(&s->side[1], NULL))) {
		sides_close(s);
		return NULL;
	}
	return s;
}

void sides_close(struct sides *s)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &s->side[i];

		if (side->holding >= 0)
			close(side->holding);
		if (side->holder > 0)
			waitpid(side->holder, NULL, 0);
		g_strfreev(side->reach);
		g_strfreev(side->env);
		g_strfreev(side->identities);
		g_free(side->frozen);
		g_free(side->folder);
		g_free(side->locks);
		g_free(side->channel);
	}
	g_free(s);
}

/* ---- A run ---------------------------------------------------------------------------------------------------- */
struct running {
	pid_t pid;
	int out;
};

static struct running begin(const struct side *s, const char *name, const char *folder, bool fresh,
			    int limit)
{
	GPtrArray *words = side_words(s, "run");
	g_autofree char *last = g_path_get_basename(folder);
	g_autofree char *there = s->folder ? g_build_filename(s->folder, last, NULL)
					   : g_strdup(folder);
	bool source = s->role == roles[0];
	struct running r = {.pid = -1, .out = -1};

	add_identities(words, s);
	add(words, "--folder=%s", there);
	add(words, "--role=%s%s", fresh ? "fresh-" : "", s->role);
	add(words, "--frozen=%s", s->frozen);
	add(words, "--");
	add(words, "env");
	add(words, "LD_LIBRARY_PATH=%s", s->frozen);
	add(words, "ESCROW_BACKEND_PATH=%s", s->frozen);
	add_all(words, s->env);
	add(words, "%s/gate", s->frozen);
	add(words, "--end=%s", s->role);
	add(words, "--set=%s", name);
	add(words, "--folder=%s", there);
	add(words, "--limit=%d", limit);
	add(words, source ? "--listen=%s" : "--connect=%s", s->channel);
	if (fresh)
		add(words, "--fresh");
	r.pid = spawn(words, NULL, &r.out);
	g_ptr_array_unref(words);
	return r;
}

static void keep(const char *folder, const char *file, JsonNode *node)
{
	g_autofree char *path = g_build_filename(folder, file, NULL);
	g_autofree char *text = json_to_string(node, TRUE);

	g_file_set_contents(path, text, -1, NULL);
}

/* Waits for that very process, then keeps what it said. */
static void finish(const struct side *s, struct running r, const char *folder, bool fresh,
		   GPtrArray *problems)
{
	g_autofree char *role = g_strdup_printf("%s%s", fresh ? "fresh-" : "", s->role);
	g_autofree char *facts = g_strdup_printf("%s.json", role);
	g_autofree char *side = g_strdup_printf("side-%s.json", role);
	g_autofree char *text = r.pid < 0 ? NULL : read_to_end(r.out);
	g_autoptr(JsonNode) root = NULL;
	int status = 0;

	if (r.pid < 0 || waitpid(r.pid, &status, 0) != r.pid || status) {
		g_ptr_array_add(problems,
				g_strdup_printf("the side of the %s could not be run", role));
		return;
	}
	root = json_from_string(text, NULL);
	if (!root || !JSON_NODE_HOLDS_OBJECT(root)) {
		g_ptr_array_add(problems,
				g_strdup_printf("the side of the %s made no sense", role));
		return;
	}
	keep(folder, side, root);
	if (json_object_has_member(json_node_get_object(root), "facts"))
		keep(folder, facts, json_object_get_member(json_node_get_object(root), "facts"));
}

/* What the kernel of that host has now. */
static char *kernel_list(const struct side *s)
{
	GPtrArray *words = side_words(s, "list");
	int out = -1;
	pid_t pid = spawn(words, NULL, &out);
	char *text = pid < 0 ? g_strdup("?") : read_to_end(out);

	g_ptr_array_unref(words);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return g_strstrip(text);
}

static void keep_lists(const char *folder, bool fresh, char *const lists[4])
{
	static const char *const members[] = {"source_before", "requester_before", "source_after",
					      "requester_after"};
	JsonBuilder *json = json_builder_new();
	g_autoptr(JsonNode) root = NULL;

	json_builder_begin_object(json);
	for (int i = 0; i < 4; i++)
		json_add_string(json, members[i], lists[i]);
	json_builder_end_object(json);
	root = json_builder_get_root(json);
	keep(folder, fresh ? "kernel-fresh.json" : "kernel.json", root);
	g_object_unref(json);
}

/* The kernel is asked when neither end has begun, and when both are reaped: they may be on the same devices. */
void sides_run(struct sides *s, const char *name, const char *folder, bool fresh, int limit,
	       GPtrArray *problems)
{
	struct running r[2];
	char *lists[4];

	for (int i = 0; i < 2; i++)
		lists[i] = kernel_list(&s->side[i]);
	for (int i = 0; i < 2; i++)
		r[i] = begin(&s->side[i], name, folder, fresh, limit);
	for (int i = 0; i < 2; i++)
		finish(&s->side[i], r[i], folder, fresh, problems);
	for (int i = 0; i < 2; i++)
		lists[2 + i] = kernel_list(&s->side[i]);
	keep_lists(folder, fresh, lists);
	for (int i = 0; i < 4; i++)
		g_free(lists[i]);
}

/* ---- The verdict ------------------------------------------------------------------------------------------------- */
static void G_GNUC_PRINTF(3, 4)
	problem(GPtrArray *problems, const char *role, const char *format, ...)
{
	g_autofree char *text = NULL;
	va_list args;

	va_start(args, format);
	text = g_strdup_vprintf(format, args);
	va_end(args);
	g_ptr_array_add(problems, g_strdup_printf("%s: %s", role, text));
}

static gint64 number(JsonObject *o, const char *name)
{
	return json_object_get_int_member_with_default(o, name, -1);
}

static bool is(JsonObject *o, const char *name, bool want)
{
	return json_object_get_boolean_member_with_default(o, name, !want) == want;
}

static const char *word(JsonObject *o, const char *name)
{
	return json_object_get_string_member_with_default(o, name, NULL);
}

static void judge_process(JsonObject *o, const char *role, GPtrArray *problems)
{
	if (number(o, "pid") <= 0 || number(o, "reaped") != number(o, "pid"))
		problem(problems, role,
			"process %" G_GINT64_FORMAT " was started, %" G_GINT64_FORMAT " was reaped",
			number(o, "pid"), number(o, "reaped"));
	else if (number(o, "reaped_ns") < number(o, "start_ns"))
		problem(problems, role, "it was reaped before it was started");
	if (number(o, "wait_status") != 0)
		problem(problems, role, "it ended with wait status 0x%" G_GINT64_MODIFIER "x",
			number(o, "wait_status"));
	if (!is(o, "left_behind", false))
		problem(problems, role, "it left a process behind");
	if (!is(o, "locked_before", true) || !is(o, "locked_after", true))
		problem(problems, role,
			"an RNIC was not locked from before its start until it was reaped");
}

static JsonObject *load(const char *folder, const char *file, JsonParser *parser)
{
	g_autofree char *path = g_build_filename(folder, file, NULL);

	if (!json_parser_load_from_file(parser, path, NULL) ||
	    !JSON_NODE_HOLDS_OBJECT(json_parser_get_root(parser)))
		return NULL;
	return json_node_get_object(json_parser_get_root(parser));
}

/* The processes are gone, so the kernel must have what it had before; softverbs keeps no such list. */
static void judge_kernel(const char *folder, bool fresh, GPtrArray *problems)
{
	g_autoptr(JsonParser) parser = json_parser_new();
	JsonObject *o = load(folder, fresh ? "kernel-fresh.json" : "kernel.json", parser);

	for (int i = 0; i < 2; i++) {
		g_autofree char *before = g_strdup_printf("%s_before", roles[i]);
		g_autofree char *after = g_strdup_printf("%s_after", roles[i]);

		if (!o || !word(o, before) || g_strcmp0(word(o, before), word(o, after)) != 0)
			problem(problems, roles[i], "the kernel lists %s before, and %s after",
				o && word(o, before) ? word(o, before) : "?",
				o && word(o, after) ? word(o, after) : "?");
	}
}

void sides_judge(const char *folder, bool fresh, GPtrArray *problems)
{
	static const char *const all[] = {"source", "requester", "fresh-source", "fresh-requester"};
	g_autofree char *frozen = NULL;

	for (int i = 0; i < (fresh ? 4 : 2); i++) {
		g_autoptr(JsonParser) parser = json_parser_new();
		g_autofree char *file = g_strdup_printf("side-%s.json", all[i]);
		JsonObject *o = load(folder, file, parser);

		if (!o) {
			problem(problems, all[i], "its side wrote nothing down");
			continue;
		}
		judge_process(o, all[i], problems);
		if (!word(o, "frozen") || (frozen && strcmp(frozen, word(o, "frozen")) != 0))
			problem(problems, all[i], "it ran another program: %s",
				word(o, "frozen") ? word(o, "frozen") : "none that is frozen");
		if (!frozen)
			frozen = g_strdup(word(o, "frozen"));
	}
	judge_kernel(folder, false, problems);
	if (fresh)
		judge_kernel(folder, true, problems);
}
