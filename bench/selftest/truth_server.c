/* A streaming server that knows the truth: it answers as SGLang does, writes every event on a
 * schedule, and notes on CLOCK_MONOTONIC when it received, when it wrote.
 *
 *     truth_server --port 0 --ttft-us 50000 --interval-us 20000 --per-event 1 --log truth.csv
 *
 * --port N         0: one that is free; which is said on stdout as `listening N`
 * --tokens N       of an answer that is asked for without a cap
 * --per-event N    tokens in one event, as speculative decoding sends them
 * --ttft-us N      from a request's arrival to its first event
 * --interval-us N  from one event of a stream to the next; 0: as fast as the client reads
 * --usage end      counts in a last event only; `asked` (else): in every event, if asked for
 * --log FILE       a line a finished answer: id,rid,recv_ns,first_write_ns,last_write_ns,
 *                  events,tokens
 * --elog FILE      a pair of 64-bit integers an event: id, time of its write
 *
 * It ends on TERM, and with the process that started it. One thread; one answer at a time on a
 * connection. A time is read immediately before the system call that writes the event.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum api { CHAT, COMPLETIONS, GENERATE };

typedef struct {
    char *bytes;
    size_t length, room;
} buffer;

typedef struct {
    int socket;
    buffer received, unsent; /* `unsent` is empty but while the client does not read */
    int is_streaming, usage_on_events, usage_at_end, waits_to_write;
    enum api api;
    char rid[65];
    int64_t id, received_ns, first_ns, last_ns, due_ns;
    int place; /* in the schedule; -1: not there */
    int tokens, sent_tokens, events;
} connection;

static long port = 0, default_tokens = 256, per_event = 1, ttft_us = 0, interval_us = 0;
static int usage_as_asked = 1;
static FILE *log_file, *event_log;
static int poller;
static int64_t answers;
static volatile sig_atomic_t is_over;

static const long SPIN_NS = 30000; /* a sleep ends about so much late: the rest is spun */

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *grown(void *old, size_t size) {
    void *grown_to = realloc(old, size);
    if (!grown_to) abort();
    return grown_to;
}

static void append(buffer *to, const char *bytes, size_t length) {
    if (to->length + length > to->room)
        to->bytes = grown(to->bytes, to->room = 2 * (to->length + length));
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

/* -- the schedule: a binary heap, the earliest event first ------------------------------------ */

static connection **schedule;
static int scheduled, schedule_room;

static void put(int place, connection *c) {
    schedule[place] = c;
    c->place = place;
}

static void sink(int place, connection *c) {
    for (;;) {
        int child = 2 * place + 1;
        if (child >= scheduled) break;
        if (child + 1 < scheduled && schedule[child + 1]->due_ns < schedule[child]->due_ns) child++;
        if (schedule[child]->due_ns >= c->due_ns) break;
        put(place, schedule[child]);
        place = child;
    }
    put(place, c);
}

static void rise(int place, connection *c) {
    while (place && schedule[(place - 1) / 2]->due_ns > c->due_ns) {
        put(place, schedule[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(place, c);
}

static void enter(connection *c) {
    if (scheduled == schedule_room)
        schedule = grown(schedule, sizeof *schedule * (schedule_room = schedule_room * 2 + 64));
    rise(scheduled++, c);
}

static void leave(connection *c) {
    if (c->place < 0) return;
    connection *last = schedule[--scheduled];
    int place = c->place;
    c->place = -1;
    if (last == c) return;
    rise(place, last);
    sink(last->place, last);
}

/* -- writing --------------------------------------------------------------------------------- */

static void want(connection *c, int to_write) {
    if (c->waits_to_write == to_write) return;
    c->waits_to_write = to_write;
    struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->socket, &event);
}

/* Write as much as the socket takes; -1: the client is gone. */
static int push(connection *c) {
    size_t done = 0;
    while (done < c->unsent.length) {
        ssize_t n = write(c->socket, c->unsent.bytes + done, c->unsent.length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return -1;
        if (n < 0) break;
        done += n;
    }
    memmove(c->unsent.bytes, c->unsent.bytes + done, c->unsent.length - done);
    c->unsent.length -= done;
    return 0;
}

static void add_chunk(connection *c, const char *bytes, size_t length) {
    char size[24];
    append(&c->unsent, size, snprintf(size, sizeof size, "%zx\r\n", length));
    append(&c->unsent, bytes, length);
    append(&c->unsent, "\r\n", 2);
}

/* `count` words of one token each; valid until the next call. */
static const char *words(int count) {
    static char *text;
    static int made;
    if (count > made) {
        text = grown(text, 4 * (size_t)count + 1);
        for (; made < count; made++) memcpy(text + 4 * made, " tok", 4);
    }
    return text;
}

static const int PROMPT_TOKENS = 16;

static int put_usage(char *at, size_t room, int completion) {
    return snprintf(at, room,
        "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d,"
        "\"prompt_tokens_details\":null}", PROMPT_TOKENS, PROMPT_TOKENS + completion, completion);
}

static char *scratch;
static size_t scratch_room;

/* The next event of an answer; with the last one its end. Goes to `unsent`. */
static void add_event(connection *c) {
    int count = (int)per_event;
    if (count > c->tokens - c->sent_tokens) count = c->tokens - c->sent_tokens;
    c->sent_tokens += count;
    c->events++;
    int is_last = c->sent_tokens == c->tokens;
    size_t room = 4 * (size_t)c->tokens + 2048;
    if (scratch_room < room) scratch = grown(scratch, scratch_room = room);
    char usage[160] = "null";
    if (c->usage_on_events) put_usage(usage, sizeof usage, c->sent_tokens);
    int length;
    if (c->api == GENERATE)
        length = snprintf(scratch, room,
            "data: {\"text\":\"%.*s\",\"output_ids\":[],\"meta_info\":{\"id\":\"%s\","
            "\"finish_reason\":%s,\"prompt_tokens\":%d,\"completion_tokens\":%d,"
            "\"cached_tokens\":0}}\n\n", 4 * c->sent_tokens, words(c->sent_tokens), c->rid,
            is_last ? "{\"type\":\"length\",\"length\":0}" : "null", PROMPT_TOKENS, c->sent_tokens);
    else if (c->api == COMPLETIONS)
        length = snprintf(scratch, room,
            "data: {\"id\":\"%s\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","
            "\"choices\":[{\"index\":0,\"text\":\"%.*s\",\"logprobs\":null,\"finish_reason\":%s,"
            "\"matched_stop\":null}],\"usage\":%s}\n\n", c->rid, 4 * count, words(count),
            is_last ? "\"length\"" : "null", usage);
    else
        length = snprintf(scratch, room,
            "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1,"
            "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
            "\"content\":\"%.*s\",\"reasoning_content\":null,\"tool_calls\":null},"
            "\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}],\"usage\":%s}\n\n",
            c->rid, 4 * count, words(count), is_last ? "\"length\"" : "null", usage);
    add_chunk(c, scratch, length);
    if (!is_last) return;
    if (c->usage_at_end && c->api != GENERATE) {
        put_usage(usage, sizeof usage, c->tokens);
        length = snprintf(scratch, room,
            "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":1,\"model\":\"m\",\"choices\":[],"
            "\"usage\":%s}\n\n", c->rid, c->api == CHAT ? "chat.completion.chunk" : "text_completion",
            usage);
        add_chunk(c, scratch, length);
    }
    add_chunk(c, "data: [DONE]\n\n", 14);
    append(&c->unsent, "0\r\n\r\n", 5);
}

static void note_answer(connection *c) {
    if (log_file)
        fprintf(log_file, "%lld,%s,%lld,%lld,%lld,%d,%d\n", (long long)c->id, c->rid,
            (long long)c->received_ns, (long long)c->first_ns, (long long)c->last_ns, c->events,
            c->tokens);
}

/* Write the next event of an answer; -1: the client is gone. */
static int send_event(connection *c) {
    add_event(c);
    c->last_ns = now_ns();
    if (c->events == 1) c->first_ns = c->last_ns;
    int outcome = push(c);
    if (event_log) {
        int64_t record[2] = {c->id, c->last_ns};
        fwrite(record, sizeof record, 1, event_log);
    }
    if (c->sent_tokens == c->tokens) {
        note_answer(c);
        c->is_streaming = 0;
    }
    return outcome;
}

/* -- reading --------------------------------------------------------------------------------- */

/* What follows `"name":` in a JSON body, or NULL. Good for the bodies that a client of ours sends:
 * in a prompt the quotes are escaped, so no name of it is met. */
static const char *value_of(const char *body, const char *name) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *at = strstr(body, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    while (*at == ' ') at++;
    if (*at != ':') return NULL;
    at++;
    while (*at == ' ') at++;
    return at;
}

static int is_true(const char *body, const char *name) {
    const char *value = value_of(body, name);
    return value && !strncmp(value, "true", 4);
}

static void begin_answer(connection *c, enum api api, const char *body) {
    c->api = api;
    c->id = ++answers;
    c->received_ns = now_ns();
    const char *cap = value_of(body, api == GENERATE ? "max_new_tokens" : "max_tokens");
    if (!cap) cap = value_of(body, "max_completion_tokens");
    long tokens = cap ? strtol(cap, NULL, 10) : default_tokens;
    c->tokens = tokens > 0 ? (int)tokens : (int)default_tokens;
    c->usage_at_end = is_true(body, "include_usage");
    c->usage_on_events = usage_as_asked && is_true(body, "continuous_usage_stats");
    c->sent_tokens = c->events = 0;
    snprintf(c->rid, sizeof c->rid, "%lld", (long long)c->id);
    const char *rid = value_of(body, "rid");
    if (rid && *rid == '"') {
        size_t length = strcspn(rid + 1, "\"\\");
        if (length >= sizeof c->rid) length = sizeof c->rid - 1;
        memcpy(c->rid, rid + 1, length);
        c->rid[length] = 0;
    }
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8"
                               "\r\ntransfer-encoding: chunked\r\n\r\n";
    append(&c->unsent, head, sizeof head - 1);
    c->is_streaming = 1;
    c->due_ns = c->received_ns + 1000LL * ttft_us;
    if (ttft_us || interval_us) enter(c);
}

static void answer_at_once(connection *c, const char *json) {
    char head[128];
    append(&c->unsent, head, snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
        strlen(json)));
    append(&c->unsent, json, strlen(json));
}

static void take_request(connection *c, const char *head, const char *body) {
    const char *path = strchr(head, ' ');
    path = path ? path + 1 : "";
    if (!strncmp(path, "/v1/chat/completions ", 21)) begin_answer(c, CHAT, body);
    else if (!strncmp(path, "/v1/completions ", 16)) begin_answer(c, COMPLETIONS, body);
    else if (!strncmp(path, "/generate ", 10)) begin_answer(c, GENERATE, body);
    else answer_at_once(c, "{}");
}

/* Take the requests that have come whole, one answer after the other. */
static void take_requests(connection *c) {
    buffer *in = &c->received;
    while (!c->is_streaming && in->length) {
        in->bytes[in->length] = 0;
        char *end = strstr(in->bytes, "\r\n\r\n");
        if (!end) return;
        size_t head = end + 4 - in->bytes, body = 0;
        *end = 0;
        const char *size = strcasestr(in->bytes, "\r\ncontent-length:");
        if (size) body = strtoul(size + 17, NULL, 10);
        *end = '\r';
        if (in->length < head + body) return;
        char after = in->bytes[head + body];
        in->bytes[head + body] = 0;
        in->bytes[head - 1] = 0;
        take_request(c, in->bytes, in->bytes + head);
        in->bytes[head + body] = after;
        in->length -= head + body;
        memmove(in->bytes, in->bytes + head + body, in->length);
    }
}

/* Read what has come; -1: the client is gone. */
static int pull(connection *c) {
    buffer *in = &c->received;
    for (;;) {
        if (in->room < in->length + 16384) in->bytes = grown(in->bytes, in->room = in->room * 2 + 65536);
        ssize_t n = read(c->socket, in->bytes + in->length, in->room - in->length - 1);
        if (n == 0) return -1;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        in->length += n;
        if (in->length + 1 < in->room) return 0; /* more would have come with it */
    }
}

static void drop(connection *c) {
    leave(c);
    close(c->socket);
    free(c->received.bytes);
    free(c->unsent.bytes);
    free(c);
}

static void accept_all(int listener) {
    int one = 1, socket;
    while ((socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        connection *c = grown(NULL, sizeof *c);
        *c = (connection){.socket = socket, .place = -1};
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, socket, &event);
    }
}

/* After anything was written or answered: take the next request, send its head, ask for more. */
static void go_on(connection *c, int outcome) {
    if (!outcome && !c->is_streaming) take_requests(c);
    if (!outcome) outcome = push(c);
    if (outcome) drop(c);
    else want(c, c->unsent.length || (c->is_streaming && c->place < 0));
}

static void serve(connection *c, uint32_t events) {
    int outcome = 0;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) outcome = pull(c);
    if (!outcome) outcome = push(c);
    /* An answer without a schedule: an event a turn, so that streams take turns. */
    int is_unscheduled = c->is_streaming && c->place < 0;
    if (!outcome && is_unscheduled && !c->unsent.length) outcome = send_event(c);
    go_on(c, outcome);
}

static void send_due(void) {
    int64_t now = now_ns();
    while (scheduled && schedule[0]->due_ns <= now) {
        connection *c = schedule[0];
        leave(c);
        int outcome = send_event(c);
        if (c->is_streaming && interval_us) {
            c->due_ns += 1000LL * interval_us;
            enter(c);
        }
        go_on(c, outcome);
    }
}

static void run(int listener) {
    static struct epoll_event events[512];
    while (!is_over) {
        struct timespec patience = {0, 0}, *wait = NULL;
        if (scheduled) {
            int64_t left = schedule[0]->due_ns - now_ns() - SPIN_NS;
            if (left > 0) patience = (struct timespec){left / 1000000000, left % 1000000000};
            wait = &patience;
        }
        int count = epoll_pwait2(poller, events, 512, wait, NULL);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr) serve(events[i].data.ptr, events[i].events);
            else accept_all(listener);
        }
        send_due();
    }
}

static int listen_on_loopback(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 4096) ||
        getsockname(listener, (void *)&address, &size)) {
        perror("listen");
        exit(1);
    }
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static FILE *opened(const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(1);
    }
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    return file;
}

static void read_options(int count, char **words_given) {
    for (int i = 1; i < count; i += 2) {
        const char *name = words_given[i], *value = i + 1 < count ? words_given[i + 1] : "";
        if (!strcmp(name, "--port")) port = atol(value);
        else if (!strcmp(name, "--tokens")) default_tokens = atol(value);
        else if (!strcmp(name, "--per-event")) per_event = atol(value);
        else if (!strcmp(name, "--ttft-us")) ttft_us = atol(value);
        else if (!strcmp(name, "--interval-us")) interval_us = atol(value);
        else if (!strcmp(name, "--usage")) usage_as_asked = strcmp(value, "end") != 0;
        else if (!strcmp(name, "--log")) log_file = opened(value);
        else if (!strcmp(name, "--elog")) event_log = opened(value);
        else {
            fprintf(stderr, "unknown option %s\n", name);
            exit(2);
        }
    }
    if (per_event < 1) per_event = 1;
    if (log_file) fputs("id,rid,recv_ns,first_write_ns,last_write_ns,events,tokens\n", log_file);
}

static void end(int signal_number) {
    (void)signal_number;
    is_over = 1;
}

int main(int count, char **arguments) {
    read_options(count, arguments);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct sigaction on_end = {.sa_handler = end};
    sigaction(SIGTERM, &on_end, NULL);
    sigaction(SIGINT, &on_end, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* a sleep is exact to a microsecond, if it can be */
    poller = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on_loopback();
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    run(listener);
    if (log_file) fclose(log_file);
    if (event_log) fclose(event_log);
    return 0;
}
