/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store.c - the database: exactly-once reports,
 * rewinds, queries. uses: proto daemon */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/resource.h>

#include "daemon/store/store_impl.h"
#include "tests/unit/daemon/store/store_fixture.h"

static void a_token_is_one_job(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    char *spec;

    assert_int_equal(submit(f, "a", 1), 1);
    assert_int_equal(submit(f, "b", 1), 2);
    assert_int_equal(f->rc, 0);
    assert_int_equal(submit(f, "a", 1), 1);
    assert_int_equal(f->rc, STORE_REPEATED);
    assert_int_equal(submit(f, "a", 2), 3); /* another user's token */
    assert_int_equal(f->rc, 0);
    assert_int_equal(store_get_job(f->s, 2, &row, NULL), 0);
    assert_true(row.state == JOB_QUEUED && row.ranks == 2 && row.tier == 1 && row.want_tier == -1 && row.submitted == 50);
    assert_int_equal(store_get_job(f->s, 4, &row, NULL), ERR_NOTFOUND);
    assert_int_equal(store_get_spec(f->s, 2, &spec, NULL), 0);
    assert_string_equal(spec, "{\"a\":1}");
    free(spec);
}

static void rows_survive_and_ids_are_not_reused(void **state)
{
    struct fixture *f = *state;
    struct job_row row, back;
    char id[33];

    submit(f, "a", 1);
    strcpy(id, store_id(f->s));
    store_get_job(f->s, 1, &row, NULL);
    row.state = JOB_RUNNING;
    row.want = JOB_WANT_PAUSE;
    row.want_tier = 2;
    row.want_eval = true;
    row.attempt = 3;
    row.last_seq = 44;
    row.started = 1.5;
    row.cpu_before = 2.5;
    row.seconds = 9.5;
    row.seconds_before = 4.25;
    row.limited = 3.5;
    row.held = 2.75;
    strcpy(row.nonce, "abc");
    strcpy(row.gpus, "GPU-1,GPU-2");
    strcpy(row.reason, "because");
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    close_store(f);
    assert_string_equal(sql(f, "DELETE FROM jobs WHERE id=1 RETURNING name"), "n");
    open_again(f);
    assert_string_equal(store_id(f->s), id);
    assert_int_equal(submit(f, "z", 1), 2);
    store_get_job(f->s, 2, &back, NULL);
    row.id = 2;
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    store_get_job(f->s, 2, &back, NULL);
    assert_memory_equal(&back, &row, sizeof row);
}

static int extend(struct fixture *f, const struct job_row *row)
{
    f->waiting++;
    store_reopen(f->s, row, "{\"a\":2}", done, f);
    wait_all(f);
    return f->rc;
}

static void a_completed_job_gets_more_steps_once(void **state)
{
    struct fixture *f = *state;
    struct job_row row, back;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    row.state = JOB_QUEUED;
    row.steps = 300;
    strcpy(row.ticket, "another");
    assert_int_equal(extend(f, &row), ERR_STATE); /* it has not completed */
    assert_string_equal(sql(f, "SELECT steps || ' ' || spec FROM jobs JOIN specs ON job=id"), "100 {\"a\":1}");
    sql_all(f, "UPDATE jobs SET state='completed', cleared=3, ended=9, last_seq=44");
    row.last_seq = 44;
    assert_int_equal(extend(f, &row), 0);
    store_get_job(f->s, 1, &back, NULL);
    assert_memory_equal(&back, &row, sizeof row);
    assert_string_equal(sql(f, "SELECT cleared || ' ' || spec FROM jobs JOIN specs ON job=id"), "0 {\"a\":2}");
    row.steps = 500;
    assert_int_equal(extend(f, &row), ERR_STATE); /* another request was faster */
    sql_all(f, "UPDATE jobs SET state='completed'");
    submit(f, "b", 1);
    store_limit_queued(f->s, 1);
    assert_int_equal(extend(f, &row), ERR_STATE); /* its user has a waiting job */
    store_limit_queued(f->s, 2);
    assert_int_equal(extend(f, &row), 0);
}

static int label(struct fixture *f, const struct job_row *before, const struct job_row *after)
{
    f->waiting++;
    store_label(f->s, before, after, done, f);
    wait_all(f);
    return f->rc;
}

static void listed(void *arg, const struct job_row *row, const char *losses)
{
    (void)losses;
    snprintf((char *)arg + strlen(arg), 8, "%lld ", (long long)row->id);
}

static void labels_are_those_of_who_saw_the_last(void **state)
{
    struct fixture *f = *state;
    struct job_row one, two, back;
    const struct store_page page = { 10, 0 };
    struct store_job_filter tagged = { .state = -1, .uid = -1, .tag = "b" };
    char ids[64] = "";

    submit(f, "a", 1);
    submit(f, "b", 1);
    store_get_job(f->s, 1, &one, NULL);
    two = one;
    strcpy(two.note, "mine");
    strcpy(two.tags, "a,b");
    assert_int_equal(label(f, &one, &two), 0);
    assert_int_equal(label(f, &one, &two), STORE_CHANGED);
    one = two;
    strcpy(two.tags, "ab,b");
    assert_int_equal(label(f, &one, &two), 0);
    one.id = 9;
    assert_int_equal(label(f, &one, &two), STORE_CHANGED); /* no such job */
    store_get_job(f->s, 1, &back, NULL);
    assert_memory_equal(&back, &two, sizeof two);
    two.note[0] = two.tags[0] = '\0'; /* a row that was on its way changes neither of them */
    f->waiting++;
    store_save(f->s, &two, done, f);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT note || ' ' || tags FROM jobs WHERE id=1"), "mine ab,b");
    assert_int_equal(store_list_jobs(f->s, &page, &tagged, listed, ids, NULL), 0);
    assert_string_equal(ids, "1 ");
    assert_true(store_filter_takes(&tagged, &back));
    strcpy(tagged.tag, "a");
    assert_int_equal(store_list_jobs(f->s, &page, &tagged, listed, ids, NULL), 0);
    assert_string_equal(ids, "1 ");
    assert_false(store_filter_takes(&tagged, &back));
}

/* A job of user `uid` that evaluates job 1's checkpoint of step 7 and finds `total` quarters. `state`: the state of
 * this job afterwards. */
static void look(struct fixture *f, uint32_t uid, const char *set, int total, const char *state)
{
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 9, .submitted = 50, .uid = uid };
    char spec[160], ends[96], token[32];

    snprintf(token, sizeof token, "%s %d", set, total);
    snprintf(spec, sizeof spec, "{\"errand\":{\"run\":\"/j\",\"step\":7,\"job\":1,\"set\":\"%s\"}}", set);
    f->waiting++;
    store_submit(f->s, &row, token, spec, done, f);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    snprintf(ends, sizeof ends, "UPDATE jobs SET state='%s' WHERE id=%lld", state, (long long)f->value);
    loss(f, f->value, 1, "val", total);
    wait_all(f);
    sql_all(f, ends);
}

static int ask(struct fixture *f, const char *set, const char *metric, struct text *ret, struct err *err)
{
    return store_eval_rows(f->s, &(struct store_eval_query){ .job = 1, .limit = 100, .dataset = set, .metric = metric }, ret, err);
}

/* For evaluations by users themselves and by root, the newest that finished is listed. An unknown name is an error if
 * there are other names. */
static void evaluations_are_listed_under_their_set(void **state)
{
    struct fixture *f = *state;
    struct text t = { 0 };
    struct err err;

    submit(f, "a", 5);
    assert_int_equal(ask(f, "test", "loss/total", &t, &err), 0); /* no evaluation yet */
    assert_string_equal(t.p, "{\"rows\":[],\"cursor\":null}");
    text_free(&t);
    look(f, 5, "test", 8, "completed");
    look(f, 5, "test", 16, "completed");
    look(f, 5, "test", 24, "failed");
    look(f, 6, "theirs", 32, "completed");
    look(f, 0, "of root", 40, "completed");
    assert_string_equal(sql(f, "SELECT group_concat(dataset || ' ' || step || ' ' || value || ' ' || by) FROM (SELECT * FROM eval_on "
                               "WHERE job=1 AND metric='loss/total' ORDER BY dataset)"),
                        "of root 7 10.0 6,test 7 4.0 3");
    assert_int_equal(ask(f, "test", "loss/total", &t, &err), 0);
    assert_non_null(strstr(t.p, "\"value\":4.0"));
    text_free(&t);
    assert_int_equal(ask(f, "theirs", NULL, &t, &err), ERR_INPUT);
    assert_string_equal(err.msg, "set: job 1 has no 'theirs'; it has of root, test");
    text_free(&t);
    assert_int_equal(ask(f, "test", "AP", &t, &err), ERR_INPUT);
    assert_string_equal(err.msg, "metric: job 1 has no 'AP'; it has loss/box, loss/total");
    text_free(&t);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss WHERE job=1"), "0");
}

static long peak_kib(void)
{
    struct rusage use;

    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return use.ru_maxrss;
}

/* A job's user may have given it millions of metrics. */
static void an_unknown_metric_takes_little_memory(void **state)
{
    struct fixture *f = *state;
    struct text t = { 0 };
    struct err err;
    long before;

    submit(f, "a", 1);
    sql_all(f, "INSERT INTO eval WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<300000) "
               "SELECT 1, printf('%063d', i), 1, 0, 0 FROM n");
    before = peak_kib();
    assert_int_equal(ask(f, NULL, "AP", &t, &err), ERR_INPUT);
    assert_in_range(peak_kib() - before, 0, 8 << 10);
    assert_non_null(strstr(err.msg, "; it has 000"));
    text_free(&t);
    assert_int_equal(ask(f, NULL, "000000000000000000000000000000000000000000000000000000000299999", &t, &err), 0);
    text_free(&t);
}

static void losses_come_out_as_they_went_in(void **state)
{
    struct fixture *f = *state;
    struct store_loss_query q = { .job = 1, .to = INT64_MAX, .limit = 5 };
    struct text t = { 0 };
    json_t *root, *rows;
    const char *cursor;

    submit(f, "a", 1);
    for (int i = 1; i <= 8; i++)
        loss(f, 1, i, i % 4 ? "train" : "val", i);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || sum(value) FROM loss WHERE job=1 AND split='train' AND term='total'"), "6 6.0");
    assert_string_equal(sql(f, "SELECT last_seq || ' ' || step FROM jobs"), "8 7");
    assert_string_equal(sql(f, "SELECT val_total FROM loss_wide WHERE step=8"), "2.0");
    assert_string_equal(sql(f, "SELECT train_total FROM job_summary"), "1.75");
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "term")), "box");
    cursor = json_string_value(json_object_get(root, "cursor"));
    assert_non_null(cursor);
    q.cursor = cursor;
    q.limit = 100;
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    json_t *rest = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(rest, "rows")), 11);
    assert_true(json_is_null(json_object_get(rest, "cursor")));
    json_decref(root);
    json_decref(rest);
    q = (struct store_loss_query){ .job = 1, .from = 2, .to = 6, .limit = 100, .split = "train", .term = "total" };
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 4);
    json_decref(root);
    q.cursor = "nonsense";
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), ERR_INPUT);
    text_free(&t);
    assert_int_equal(store_losses(f->s, 1, &t, NULL), 0);
    assert_string_equal(t.p, "{\"train\":{\"box\":0.5,\"total\":1.75},\"val\":{\"box\":0.5,\"total\":2.0}}");
    text_free(&t);
    sql(f, "INSERT INTO eval SELECT 1, m.column1, v.column1, v.column2, 5 FROM (VALUES ('abs_rel'), ('AP'), ('AP50')) m, "
           "(VALUES (2, 0.25), (4, 0.5), (6, 0.5), (8, NULL)) v");
    assert_int_equal(store_losses(f->s, 1, &t, NULL), 0);
    assert_non_null(strstr(t.p, "\"val\":{\"box\":0.5,\"total\":2.0},\"best\":{\"metric\":\"AP\",\"value\":0.5,\"step\":4}}"));
    text_free(&t);
    sql(f, "DELETE FROM eval WHERE metric<>'abs_rel'");
    assert_int_equal(store_losses(f->s, 1, &t, NULL), 0);
    assert_non_null(strstr(t.p, ",\"best\":{\"metric\":\"abs_rel\",\"value\":0.25,\"step\":2}}"));
    text_free(&t);
    assert_int_equal(store_losses(f->s, 77, &t, NULL), 0);
    assert_string_equal(t.p, "{\"train\":{},\"val\":{}}");
    text_free(&t);
}

static void a_curve_is_thinned_by_seeks(void **state)
{
    struct fixture *f = *state;
    struct store_loss_query q = { .job = 1, .to = INT64_MAX, .limit = 5000, .points = 10, .term = "total" };
    struct text t = { 0 };
    json_t *root, *rows;

    submit(f, "a", 1);
    for (int i = 1; i <= 1000; i++)
        loss(f, 1, i, "train", 10 * i);
    wait_all(f);
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "step")), 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 9), "step")), 10000);
    json_decref(root);
    q.points = 5000;
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 1000); /* never more rows than there are */
    json_decref(root);
    q.points = 1;
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "step")), 10000);
    json_decref(root);
}

static void add_user(void *arg, uint32_t uid, int64_t bytes)
{
    char *seen = arg;

    snprintf(seen + strlen(seen), 20, "%u:%lld ", uid, (long long)bytes);
}

/* The rows of each job count up to the limit, and its files count in any case. */
static void what_each_user_takes(void **state)
{
    struct fixture *f = *state;
    char limited[100] = "", all[100] = "";

    submit(f, "a", 7);
    submit(f, "b", 7);
    submit(f, "c", 8);
    sql_all(f, "UPDATE jobs SET reported = 300 WHERE id = 1; UPDATE jobs SET reported = 50 WHERE id = 2");
    assert_int_equal(store_each_user(f->s, 100, 1000, add_user, limited, NULL), 0);
    assert_string_equal(limited, "7:2150 8:1000 ");
    assert_int_equal(store_each_user(f->s, 0, 1000, add_user, all, NULL), 0);
    assert_string_equal(all, "7:2350 8:1000 ");
}

static void an_attempt_rewinds(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    struct store_rewind r;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    row.attempt = 1;
    row.last_seq = 1;
    report(f, 1, 1, &row, "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0,\"time\":1}");
    for (int i = 1; i <= 9; i++)
        loss(f, 1, 1 + i, "train", i);
    report(f, 1, 11, NULL, "{\"type\":\"eval\",\"step\":8,\"metrics\":{\"AP\":0.5,\"AR\":null}}");
    report(f, 1, 12, NULL,
           "{\"type\":\"checkpoint\",\"step\":4,\"phase\":\"published\",\"path\":\"p\",\"bytes\":7,\"val_loss\":null,\"best\":true}");
    rewind_to(f, 1, 4, &r);
    assert_int_equal(r.at.removed, 12);
    row.attempt = 2;
    row.last_seq = 13;
    row.step = 4;
    report(f, 1, 13, &row, "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":4,\"time\":2}");
    for (int i = 5; i <= 9; i++)
        loss(f, 1, 9 + i, "train", i);
    row.last_seq = 19;
    row.state = JOB_COMPLETED;
    row.step = 9;
    report(f, 1, 19, &row, "{\"type\":\"end\",\"outcome\":\"completed\",\"reason\":\"\"}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || sum(step) FROM loss WHERE term='total'"), "9 45");
    assert_string_equal(sql(f, "SELECT count(*) FROM eval"), "0");
    assert_string_equal(sql(f, "SELECT step FROM checkpoints"), "4");
    assert_string_equal(sql(f, "SELECT text FROM events WHERE kind='rewound'"),
                        "attempt 2 goes on after step 4; 0 rows of later steps were removed");
    assert_string_equal(sql(f, "SELECT outcome FROM attempts WHERE attempt=2"), "completed");
    assert_string_equal(sql(f, "SELECT state || last_seq FROM jobs"), "completed19");
    assert_string_equal(sql(f, "SELECT step || tier FROM tiers"), "1rerun");
}

/* Reports of the step that an attempt continues from were stored before, and are not sent again. An end counts once:
 * detd and the next supervisor may both find that an attempt is lost. */
static void the_step_itself_stays(void **state)
{
    struct fixture *f = *state;
    struct store_rewind r;
    struct job_row row;
    char text[160];

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    row.attempt = 1;
    report(f, 1, 1, &row, "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0,\"time\":1}");
    for (int i = 1; i <= 2; i++) {
        loss(f, 1, 3 * i - 1, "val", 4 * i);
        snprintf(text, sizeof text, "{\"type\":\"eval\",\"step\":%d,\"metrics\":{\"AP\":0.5}}", 4 * i);
        report(f, 1, 3 * i, NULL, text);
        snprintf(text, sizeof text,
                 "{\"type\":\"checkpoint\",\"step\":%d,\"phase\":\"published\",\"path\":\"p\",\"bytes\":7,\"val_loss\":1,\"best\":true}",
                 4 * i);
        report(f, 1, 3 * i + 1, NULL, text);
    }
    report(f, 1, 8, NULL, "{\"type\":\"ended\",\"attempt\":1,\"outcome\":\"failed\",\"reason\":\"the first\",\"time\":2}");
    report(f, 1, 9, NULL, "{\"type\":\"ended\",\"attempt\":1,\"outcome\":\"failed\",\"reason\":\"the second\",\"time\":3}");
    row.attempt = 2;
    rewind_to(f, 1, 4, &r);
    report(f, 1, 10, &row, "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":4,\"time\":4}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM eval"), "4");
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM checkpoints"), "4");
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM loss WHERE split='val' AND term='total'"), "4");
    assert_string_equal(sql(f, "SELECT reason || ended FROM attempts WHERE attempt=1"), "the first2.0");
}

/* A job that is saved after reports of the same batch has the saved values. */
static void what_is_saved_last_holds(void **state)
{
    struct fixture *f = *state;
    struct job_row row;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    for (int i = 1; i <= 9; i++)
        loss(f, 1, i, "train", i);
    row.last_seq = 9;
    row.step = 4; /* it went back there */
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT step || ' ' || last_seq FROM jobs"), "4 9");
}

static bool is_there(void *arg, int64_t step)
{
    (void)arg;
    (void)step;
    return true;
}

/* Each attempt has its own identity; a later report replaces the first. */
static void identities_are_kept(void **state)
{
    static const char want[] = "\"outcome\":\"\",\"reason\":\"\",\"identity\":null},{\"attempt\":1,",
                      first[] = "\"outcome\":\"\",\"reason\":\"\",\"identity\":{\"hash\":\"02\",\"versions\":{}}}]";
    struct fixture *f = *state;
    struct text t = { 0 };
    struct job_row row;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    for (int i = 1; i <= 2; i++) {
        row.attempt = i;
        row.last_seq = 3 * i - 2;
        report(f, 1, row.last_seq, &row,
               i == 1 ? "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0}"
                      : "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":0}");
        if (i == 2)
            break;
        report(f, 1, 2, NULL, "{\"type\":\"identity\",\"attempt\":1,\"identity\":{\"hash\":\"01\"}}");
        report(f, 1, 3, NULL, "{\"type\":\"identity\",\"attempt\":1,\"identity\":{\"hash\":\"02\",\"versions\":{}}}");
    }
    wait_all(f);
    assert_int_equal(store_job_details(f->s, 1, f->folder, is_there, NULL, &t, NULL), 0);
    if (!strstr(t.p, want) || !strstr(t.p, first))
        fail_msg("%s", t.p);
    text_free(&t);
    assert_string_equal(sql(f, "SELECT group_concat(identity, ';') FROM (SELECT * FROM attempts ORDER BY attempt)"),
                        "{\"hash\":\"02\",\"versions\":{}};");
}

static void a_number_told_twice_is_refused_and_noted(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    loss(f, 1, 1, "train", 5);
    loss(f, 1, 2, "train", 5);
    loss(f, 1, 3, "train", 6);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss"), "4");
    assert_string_equal(sql(f, "SELECT count(*) FROM events WHERE kind='conflict'"), "2");
    assert_string_equal(sql(f, "SELECT last_seq FROM jobs"), "3");
}

/* The first value stays, the event says so, and the rest of the record is kept. */
static void a_metric_told_twice_is_refused_and_noted(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    report(f, 1, 1, NULL, "{\"type\":\"eval\",\"step\":4,\"time\":5,\"metrics\":{\"AP\":0.5}}");
    report(f, 1, 2, NULL, "{\"type\":\"eval\",\"step\":4,\"time\":6,\"metrics\":{\"A\":1,\"AP\":0.75,\"Z\":2}}");
    wait_all(f);
    assert_int_equal(f->rc, 0);
    assert_string_equal(sql(f, "SELECT group_concat(metric || value) FROM (SELECT * FROM eval ORDER BY metric)"), "A1.0,AP0.5,Z2.0");
    assert_string_equal(sql(f, "SELECT job || level || kind || text FROM events"),
                        "1errorconflicta second value of AP at step 4 was refused: the trainer reported it twice");
    assert_string_equal(sql(f, "SELECT last_seq FROM jobs"), "2");
}

static void not_finite_is_null(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    report(f, 1, 1, NULL,
           "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"off\",\"terms\":{\"total\":[null,4],\"none\":[0,0]}}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss WHERE value IS NULL"), "2");
}

/* A text that was cut in a character, or has bytes of no character, is stored as whole UTF-8. */
static void torn_text(void **state)
{
    static const char *const texts[] = { "caf\xc3", "\xc3\xa9\xff\xe2\x82", "\xed\xa0\x80", "whole \xc3\xa9" };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        store_event(f->s, 0, "info", "k", texts[i], 1);
    f->waiting++;
    store_setting(f->s, "tier", "world", done, f);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(text, '|') FROM (SELECT text FROM events ORDER BY id)"),
                        "caf?|\xc3\xa9???|???|whole \xc3\xa9");
}

static void events_and_pages(void **state)
{
    struct fixture *f = *state;
    struct store_page page = { .limit = 3 };
    struct text t = { 0 };
    json_t *root;

    submit(f, "a", 1);
    for (int i = 0; i < 5; i++)
        store_event(f->s, i % 2, "info", "k", "a \"text\"", i);
    f->waiting++;
    store_setting(f->s, "tier", "world", done, f);
    wait_all(f);
    assert_int_equal(store_events(f->s, 0, &page, &t, NULL), 0);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 3);
    page.cursor = json_integer_value(json_object_get(root, "cursor"));
    json_decref(root);
    store_events(f->s, 0, &page, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 2);
    assert_true(json_is_null(json_object_get(root, "cursor")));
    json_decref(root);
    page.cursor = 0;
    store_events(f->s, 1, &page, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 2);
    json_decref(root);
}

static void keep_gpu(void *arg, const struct store_gpu *gpu)
{
    struct store_gpu *kept = arg;

    kept[gpu->uuid[4] == '2'] = *gpu;
}

static void gpus_are_kept(void **state)
{
    struct fixture *f = *state;
    struct store_gpu gpus[] = {
        { .uuid = "GPU-1", .name = "A", .memory_bytes = 80, .ecc_errors = -1 },
        { .uuid = "GPU-2", .name = "B", .memory_bytes = 96, .ecc_errors = 3, .quarantine = "Xid 79", .quarantined = 7 }
    };
    struct store_gpu kept[2] = { 0 };
    struct err err;

    for (int i = 0; i < 2; i++) {
        f->waiting++;
        store_gpu(f->s, &gpus[i], 9, done, f);
    }
    wait_all(f);
    close_store(f);
    open_again(f);
    assert_int_equal(store_load_gpus(f->s, keep_gpu, kept, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(kept[i].name, gpus[i].name);
        assert_string_equal(kept[i].quarantine, gpus[i].quarantine);
        assert_true(kept[i].memory_bytes == gpus[i].memory_bytes && kept[i].ecc_errors == gpus[i].ecc_errors);
        assert_true(kept[i].quarantined == gpus[i].quarantined);
    }
    gpus[1].quarantine[0] = '\0';
    gpus[1].quarantined = 0;
    f->waiting++;
    store_gpu(f->s, &gpus[1], 10, done, f);
    wait_all(f);
    assert_string_equal(
        sql(f, "SELECT group_concat(uuid) FROM (SELECT * FROM gpus WHERE quarantine='' AND quarantined IS NULL ORDER BY uuid)"),
        "GPU-1,GPU-2");
}

static void list_and_load(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    char token[16];

    for (int i = 1; i <= 20; i++) {
        snprintf(token, sizeof token, "t%d", i);
        submit(f, token, 1);
        store_get_job(f->s, i, &row, NULL);
        if (i != 2) {
            row.state = JOB_COMPLETED;
            f->waiting++;
            store_save(f->s, &row, done, f);
        }
    }
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(id) FROM (SELECT id FROM jobs WHERE state='queued')"), "2");
}

static void count_row(void *arg, const struct job_row *row)
{
    int64_t *sum = arg;

    *sum += row->id;
}

static void count_listed(void *arg, const struct job_row *row, const char *losses)
{
    assert_string_equal(losses, "{\"train\":{},\"val\":{}}");
    count_row(arg, row);
}

static void live_and_newest_jobs(void **state)
{
    struct fixture *f = *state;
    struct store_page page = { .limit = 3, .cursor = 11 };
    int64_t sum = 0;

    list_and_load(state);
    assert_int_equal(store_load_jobs(f->s, 3, count_row, &sum, NULL), 0);
    assert_int_equal(sum, 20 + 19 + 18 + 2);
    sum = 0;
    assert_int_equal(store_list_jobs(f->s, &page, &(struct store_job_filter){ .state = -1, .uid = -1 }, count_listed, &sum, NULL), 0);
    assert_int_equal(sum, 10 + 9 + 8);
    sum = 0;
    assert_int_equal(store_list_jobs(f->s, &page, &(struct store_job_filter){ .state = JOB_QUEUED, .uid = -1 }, count_listed, &sum, NULL),
                     0);
    assert_int_equal(sum, 2);
}

static void keep_listed(void *arg, const struct job_row *row, const char *losses)
{
    int64_t *last = arg;

    assert_string_equal(losses, "{\"train\":{\"total\":2.0},\"val\":{}}");
    assert_true(*last == 0 || row->id < *last);
    *last = row->id;
}

/* The cost of queries so far: rows scanned because an index was missing, and steps of SQLite's machine. */
struct effort {
    int64_t rows_scanned, steps;
};

static int count_steps(unsigned what, void *arg, void *statement, void *ns)
{
    struct effort *sum = arg;

    (void)what;
    (void)ns;
    sum->rows_scanned += sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
    sum->steps += sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 1);
    return 0;
}

/* The cost of a page, in steps of SQLite's machine. */
static int64_t cost_of_page(struct fixture *f, int64_t cursor, int state, int64_t *ret_last)
{
    struct store_page page = { .limit = 50, .cursor = cursor };
    struct effort sum = { 0 };

    *ret_last = 0;
    for (int i = 0; i < STORE_READERS; i++)
        sqlite3_trace_v2(f->s->reader[i], SQLITE_TRACE_PROFILE, count_steps, &sum);
    assert_int_equal(store_list_jobs(f->s, &page, &(struct store_job_filter){ .state = state, .uid = -1 }, keep_listed, ret_last, NULL), 0);
    for (int i = 0; i < STORE_READERS; i++)
        sqlite3_trace_v2(f->s->reader[i], 0, NULL, NULL);
    assert_int_equal(sum.rows_scanned, 0);
    assert_true(sum.steps > 0);
    return sum.steps;
}

/* A page of a list costs the same whether a thousand or a hundred thousand jobs lie in between. */
static void a_page_costs_what_it_shows(void **state)
{
    static const int counts[] = { 1000, 100000 };
    struct fixture *f = *state;
    int64_t cost[2][3], last;
    char text[1200];

    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
                 "INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) "
                 "SELECT 'n', 'u', 1, 't%d-' || i, iif(i %% (%d / 60) = 1, 'failed', 'completed'), 'rerun', 'cpu', 1, 9, 5 FROM n; "
                 "INSERT INTO series (job, split, term) SELECT id, 'train', 'total' FROM jobs WHERE id > (SELECT coalesce(max(job), 0) "
                 "FROM series); "
                 "INSERT INTO point SELECT id, 5, 0, 4, 2, 1, 5 FROM series WHERE id > (SELECT coalesce(max(series), 0) FROM point);",
                 counts[i], i, counts[i]);
        sql_all(f, text);
        cost[i][0] = cost_of_page(f, 0, -1, &last);
        cost[i][1] = cost_of_page(f, last, -1, &last);
        cost[i][2] = cost_of_page(f, 0, JOB_FAILED, &last);
        assert_true(last > 0);
        assert_true(cost_of_page(f, last, JOB_FAILED, &last) > 0 && last > 0);
        assert_true(cost_of_page(f, 0, JOB_QUEUED, &last) < 100 && last == 0);
    }
    for (int k = 0; k < 3; k++) {
        assert_true(cost[0][k] > 50 && cost[0][k] < 10000);
        assert_int_equal(cost[1][k], cost[0][k]);
    }
}

static int submit_after(struct fixture *f, const char *token, int64_t other, bool ok)
{
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .ranks = 1, .steps = 1, .submitted = 1, .after = other, .after_ok = ok };

    f->waiting++;
    store_submit(f->s, &row, token, "{}", done, f);
    wait_all(f);
    return f->rc;
}

/* A state that is already reached is not waited for, and it is not missed when its job is removed later. */
static void a_job_waits_for_one_that_may_come_to_it(void **state)
{
    static const enum job_state ends[] = { JOB_COMPLETED, JOB_FAILED, JOB_CANCELLED };
    struct fixture *f = *state;
    struct job_row row;

    assert_int_equal(submit_after(f, "none", 99, false), ERR_NOTFOUND);
    for (int i = 0; i < 3; i++)
        submit(f, (char[]){ (char)('a' + i), 0 }, 1);
    assert_int_equal(submit_after(f, "waits", 1, true), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_get_job(f->s, i + 1, &row, NULL), 0);
        row.state = ends[i];
        f->waiting++;
        store_save(f->s, &row, done, f);
    }
    wait_all(f);
    assert_int_equal(submit_after(f, "well", 1, true), STORE_CLEAR);
    assert_int_equal(submit_after(f, "any", 2, false), STORE_CLEAR);
    assert_int_equal(submit_after(f, "failed", 2, true), ERR_STATE);
    assert_int_equal(submit_after(f, "cancelled", 3, true), ERR_STATE);
    assert_string_equal(sql(f, "SELECT group_concat(token || after, ' ') FROM (SELECT token, after FROM jobs WHERE id>3 ORDER BY id)"),
                        "waits1 well0 any0");
}

struct overtaking {
    struct fixture *f;
    int behind[2]; /* answers that were still to come, at the answers to an id and to a submission */
    int rc[2], n;
};

static void overtaken(void *arg, int rc, int64_t value, const struct err *err)
{
    struct overtaking *o = arg;

    done(o->f, rc, value, err);
    o->behind[o->n] = o->f->waiting;
    o->rc[o->n++] = rc;
}

/* While the disk is slow, thousands of rows wait. A new job's place is before them, but behind changes of states. */
static void a_submission_waits_for_no_rows(void **state)
{
    enum { LOSSES = 2 * STORE_BATCH_ROWS, BATCH_LOSSES = STORE_BATCH_ROWS / 2 };
    struct fixture *f = *state;
    struct overtaking o = { .f = f };
    struct job_row row;
    char path[128];
    sqlite3 *db;

    submit(f, "a", 1);
    assert_int_equal(store_get_job(f->s, 1, &row, NULL), 0);
    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 1; i <= LOSSES; i++)
        loss(f, 1, i, "train", i);
    row.state = JOB_COMPLETED;
    row.last_seq = LOSSES;
    f->waiting++;
    store_save(f->s, &row, done, f);
    for (int i = LOSSES + 1; i <= 2 * LOSSES; i++)
        loss(f, 1, i, "train", i);
    row = (struct job_row){ .state = JOB_QUEUED, .want_tier = -1, .ranks = 1, .steps = 1, .submitted = 1, .after = 1 };
    f->waiting += 2;
    store_take_id(f->s, overtaken, &o);
    store_submit(f->s, &row, "b", "{}", overtaken, &o);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    wait_all(f);
    assert_int_equal(o.rc[0], 0);
    assert_int_equal(o.rc[1], STORE_CLEAR);
    assert_true(o.behind[0] > LOSSES - BATCH_LOSSES && o.behind[1] > LOSSES - BATCH_LOSSES);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || max(last_seq) FROM loss, jobs WHERE job=1 AND term='total' AND id=1"),
                        "8000 8000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_submission_waits_for_no_rows),
        TEST(a_job_waits_for_one_that_may_come_to_it),
        TEST(a_token_is_one_job),
        TEST(rows_survive_and_ids_are_not_reused),
        TEST(a_completed_job_gets_more_steps_once),
        TEST(labels_are_those_of_who_saw_the_last),
        TEST(evaluations_are_listed_under_their_set),
        TEST(losses_come_out_as_they_went_in),
        TEST(a_curve_is_thinned_by_seeks),
        TEST(an_unknown_metric_takes_little_memory),
        TEST(what_each_user_takes),
        TEST(an_attempt_rewinds),
        TEST(the_step_itself_stays),
        TEST(what_is_saved_last_holds),
        TEST(identities_are_kept),
        TEST(a_number_told_twice_is_refused_and_noted),
        TEST(a_metric_told_twice_is_refused_and_noted),
        TEST(not_finite_is_null),
        TEST(events_and_pages),
        TEST(torn_text),
        TEST(gpus_are_kept),
        TEST(live_and_newest_jobs),
        TEST(a_page_costs_what_it_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
