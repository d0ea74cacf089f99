/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/ingest.h - sup.sock: what supervisors report, and what detd tells them. Lines as proto/report.h has them. */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct err;
struct events;
struct ingest;
struct job;
struct jobs;
struct store;
struct wires;

/* All borrowed. */
struct ingest_config {
    uv_loop_t *loop;
    struct wires *wires;
    struct store *store;
    struct jobs *jobs;
    const struct events *events;
    const char *state; /* folder, for messages */
    bool others;       /* users who have jobs of their own may come, too */
    /* A supervisor of the job said hello; its connection is closed, and there is no newer one. Never after ingest_close(). */
    void (*connected)(void *arg, struct job *j);
    void (*gone)(void *arg, struct job *j);
    void *arg;
};

/* Listens at <state>/sup.sock; the process must stand in the state folder, since the path may be longer than a socket's name. */
int ingest_open(const struct ingest_config *config, struct ingest **ret, struct err *err);
void ingest_close(struct ingest *in);
void ingest_free(struct ingest *in);
/* Hangs up on its supervisor, which is none. */
void ingest_hang_up(struct job *j);
/* Sends a command. Nothing happens while no supervisor is connected: its welcome will say it. tier NULL: the word has none. */
void ingest_send_word(struct job *j, const char *word, const char *tier);
