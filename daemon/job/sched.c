#include "daemon/job/sched.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_service(const void *pa, const void *pb)
{
    const struct sched_job *a = pa, *b = pb;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->granted != b->granted)
        return a->granted < b->granted ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

bool sched_is_before(const struct sched_job *a, const struct sched_job *b)
{
    return by_service(a, b) < 0;
}

int sched_threads(const struct sched_job *job, const struct sched_node *node)
{
    int share = node->cpu_slots / job->ranks;

    if (job->threads > 0)
        return job->threads;
    return share > 1 ? share : 1;
}

int sched_cpu_need(const struct sched_job *job, const struct sched_node *node)
{
    int64_t need = (int64_t)job->ranks * sched_threads(job, node);

    if (job->cuda)
        return 0;
    return need > node->cpu_slots ? node->cpu_slots : (int)need;
}

int sched_gpu_need(const struct sched_job *job)
{
    int share = job->ranks_per_gpu > 1 ? job->ranks_per_gpu : 1;

    if (job->cuda && job->gpus_asked > 0)
        return job->gpus_asked;
    return job->cuda ? (job->ranks + share - 1) / share : 0;
}

/* Adds the jobs and GPUs that the user of `job` has among the first n of `all`. */
static void count_user(const struct sched_job *job, const struct sched_job *all, int n, int *jobs, int *gpus)
{
    for (int i = 0; i < n; i++)
        if (all[i].uid == job->uid) {
            ++*jobs;
            *gpus += sched_gpu_need(&all[i]);
        }
}

static const char *over_limit(const struct sched_job *job, const struct sched_node *node, int jobs, int gpus)
{
    if (!job->free && node->user_running > 0 && jobs >= node->user_running)
        return "user_running";
    if (!job->free && node->user_gpus > 0 && job->cuda && gpus + sched_gpu_need(job) > node->user_gpus)
        return "user_gpus";
    return NULL;
}

const char *sched_user_limit(const struct sched_job *job, const struct sched_node *node, int *ret_has)
{
    int jobs = 0, gpus = 0;
    const char *limit;

    count_user(job, node->holders, node->nholders, &jobs, &gpus);
    limit = over_limit(job, node, jobs, gpus);
    *ret_has = limit && limit[5] == 'g' ? gpus : jobs;
    return limit;
}

/* The jobs and GPUs that a user has, gets now, or waits for as a head. */
struct tally {
    bool used;
    uint32_t uid;
    int jobs, gpus;
};

/* A hash table with a place for each user of n jobs. `size` is a power of two over n. */
struct tallies {
    struct tally *all;
    unsigned size;
};

static struct tally *tally_of(const struct tallies *t, uint32_t uid)
{
    unsigned i = uid * 2654435761u % t->size;

    while (t->all[i].used && t->all[i].uid != uid)
        i = (i + 1) % t->size;
    t->all[i].used = true;
    t->all[i].uid = uid;
    return &t->all[i];
}

static void tally(const struct tallies *t, const struct sched_job *job)
{
    struct tally *user = tally_of(t, job->uid);

    user->jobs++;
    user->gpus += sched_gpu_need(job);
}

/* Returns false if memory is lacking. */
static bool tally_holders(struct tallies *ret, const struct sched_node *node, int n)
{
    for (ret->size = 2; ret->size <= (unsigned)(n + node->nholders);)
        ret->size *= 2;
    ret->all = calloc(ret->size, sizeof *ret->all);
    for (int i = 0; i < node->nholders && ret->all; i++)
        tally(ret, &node->holders[i]);
    return ret->all != NULL;
}

static bool user_has_enough(const struct sched_job *job, const struct sched_node *node, const struct tallies *t)
{
    const struct tally *user = tally_of(t, job->uid);

    return over_limit(job, node, user->jobs, user->gpus) != NULL;
}

/* Number of slots that the job needs: GPUs or CPU slots. */
static int need(const struct sched_job *job, const struct sched_node *node)
{
    return job->cuda ? sched_gpu_need(job) : sched_cpu_need(job, node);
}

/* leaving: true for holders that are on their way out and may take their time; false for holders that have not been
 * asked. */
static bool may_yield(const struct sched_job *holder, const struct sched_job *head, bool leaving)
{
    return holder->cuda == head->cuda && holder->backfill && (leaving ? holder->lingers : !holder->leaves) && !holder->yields_to &&
           by_service(head, holder) < 0;
}

/* Marks as many holders as have to go, the last in the order of service first. Returns how many slots the head still
 * lacks. */
static int ask_for_room(const struct sched_job *head, const struct sched_node *node, bool leaving, int lacks)
{
    for (int i = node->nholders; i-- > 0 && lacks > 0;)
        if (may_yield(&node->holders[i], head, leaving)) {
            node->holders[i].yields_to = head->id;
            lacks -= need(&node->holders[i], node);
        }
    return lacks;
}

/* Whether free slots, slots that become free by themselves, and slots of backfill jobs together suffice for the head.
 * If so, marks as many backfill jobs as have to go, first those on their way out. If not, marks no job. */
static bool make_room(const struct sched_job *head, const struct sched_node *node)
{
    int lacks = need(head, node) - (head->cuda ? node->gpus_free + node->gpus_soon : node->cpu_free), held = 0;

    for (int i = 0; i < node->nholders; i++) {
        const struct sched_job *holder = &node->holders[i];

        if (may_yield(holder, head, true) || may_yield(holder, head, false))
            held += need(holder, node);
        else if (holder->cuda == head->cuda && holder->leaves)
            lacks -= need(holder, node);
    }
    if (lacks > held)
        return false;
    if (node->nholders > 1)
        qsort(node->holders, (size_t)node->nholders, sizeof *node->holders, by_service);
    lacks = ask_for_room(head, node, false, ask_for_room(head, node, true, lacks));
    for (int i = 0; i < node->nholders; i++) { /* takes marks back if a larger job alone suffices */
        struct sched_job *holder = &node->holders[i];

        if (holder->yields_to == head->id && need(holder, node) <= -lacks) {
            holder->yields_to = 0;
            lacks += need(holder, node);
        }
    }
    return true;
}

static int by_end(const void *pa, const void *pb)
{
    const struct sched_job *a = pa, *b = pb;

    return a->ends < b->ends ? -1 : a->ends > b->ends;
}

static const struct sched_job *find(const struct sched_job *queue, int n, int64_t id)
{
    while (n > 0 && queue[n - 1].id != id)
        n--;
    return n > 0 ? &queue[n - 1] : NULL;
}

double sched_expected(struct sched_job *queue, int n, const struct sched_node *node, int64_t id, double now)
{
    const struct sched_job *wanted;
    int free[2] = { node->cpu_free, node->gpus_free + node->gpus_soon }, next[2] = { 0, 0 };
    double at[2] = { now, now };

    if (n > 1)
        qsort(queue, (size_t)n, sizeof *queue, by_service);
    wanted = find(queue, n, id);
    for (int i = 0; i < node->nholders && wanted; i++) {
        struct sched_job *holder = &node->holders[i];

        if (holder->leaves || (holder->backfill && by_service(wanted, holder) < 0)) /* leaves in time */
            holder->ends = now;
    }
    if (node->nholders > 1)
        qsort(node->holders, (size_t)node->nholders, sizeof *node->holders, by_end);
    for (int i = 0; i < n; i++) {
        const struct sched_job *job = &queue[i];
        int kind = job->cuda, has;
        bool waits_otherwise = sched_gpu_need(job) > node->gpus || sched_user_limit(job, node, &has);

        if (waits_otherwise && job->id == id)
            return INFINITY;
        if (waits_otherwise)
            continue;
        for (; free[kind] < need(job, node); next[kind]++) {
            const struct sched_job *holder = &node->holders[next[kind]];

            if (next[kind] == node->nholders || holder->ends == INFINITY)
                return INFINITY;
            if (holder->cuda != job->cuda)
                continue;
            free[kind] += need(holder, node);
            at[kind] = holder->ends > at[kind] ? holder->ends : at[kind];
        }
        if (job->id == id)
            return at[kind];
        free[kind] -= need(job, node);
    }
    return INFINITY;
}

int sched_pick(struct sched_job *queue, int n, struct sched_node node, double now, struct sched_grant *ret)
{
    bool has_head[2] = { false, false }, closed[2] = { false, false };
    struct tallies users;
    int count = 0;

    if (!tally_holders(&users, &node, n))
        return 0;
    if (n > 1)
        qsort(queue, (size_t)n, sizeof *queue, by_service);
    for (int i = 0; i < n; i++) {
        struct sched_job *job = &queue[i];
        struct sched_grant grant = { job->id, sched_cpu_need(job, &node), sched_gpu_need(job), sched_threads(job, &node),
                                     has_head[job->cuda] };
        bool later = job->not_before > now;

        if (closed[job->cuda] || grant.gpus > node.gpus || user_has_enough(job, &node, &users) || (job->fixed && grant.backfill))
            continue;
        tally(&users, job);
        if (later || grant.cpu_slots > node.cpu_free || grant.gpus > node.gpus_free) {
            closed[job->cuda] = !later && make_room(job, &node);
            has_head[job->cuda] = true;
            continue;
        }
        node.cpu_free -= grant.cpu_slots;
        node.gpus_free -= grant.gpus;
        ret[count++] = grant;
    }
    free(users.all);
    return count;
}
