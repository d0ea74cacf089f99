/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/ingest.h - sup.sock: reports of supervisors to detd, and
 * messages of detd to them. Lines as in proto/report.h. */
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
    bool others;       /* supervisors of other users, with jobs of their own, may connect, too */
    /* connected: a supervisor of the job said hello. gone: its connection is closed, and there is no newer one. Neither
     * is called after ingest_close(). */
    void (*connected)(void *arg, struct job *j);
    void (*gone)(void *arg, struct job *j);
    void *arg;
};

/* Listens at <state>/sup.sock; the process must stand in the state folder, since the path may be longer than a socket's
 * name. */
int ingest_open(const struct ingest_config *config, struct ingest **ret, struct err *err);
void ingest_close(struct ingest *in);
void ingest_free(struct ingest *in);
/* Whether its supervisor is connected, and its messages are read: those of a user with many queued rows wait. */
bool ingest_reads(const struct job *j);
/* Closes the connection that speaks for the job, if there is one: a newer one takes its place, or no process lives. */
void ingest_hang_up(struct job *j);
/* Sends a command. Does nothing without a connection: the welcome will repeat it. tier NULL: the word has no tier. */
void ingest_send_word(struct job *j, const char *word, const char *tier);
