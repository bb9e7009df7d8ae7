/* What every rank found, brought together on rank 0: see doctor.h. */
#include "doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "hetmpi.h"

#define SLOW 0.5             /* of the median */
#define PAIRS_TO_COMPARE 4

static const char *const severity_names[] = {"note", "warning", "fault"};

void find(struct doctor *doctor, enum severity severity, const char *topic, const char *cost, const char *mend,
          const char *what, ...)
{
    struct json_object *finding = json_object_new_object(), *nodes = json_object_new_array();
    char text[1024];
    va_list arguments;

    va_start(arguments, what);
    vsnprintf(text, sizeof(text), what, arguments);
    va_end(arguments);
    add_text(finding, "severity", severity_names[severity]);
    add_text(finding, "topic", topic);
    add_text(finding, "what", text);
    add_text(finding, "cost", cost);
    add_text(finding, "mend", mend);
    json_object_array_add(nodes, json_object_new_string(doctor->host));
    json_object_object_add(finding, "nodes", nodes);
    json_object_array_add(doctor->findings, finding);
}

static enum severity severity_of(struct json_object *finding)
{
    const char *name = text_of(finding, "severity");

    return strcmp(name, "fault") == 0 ? FAULT : strcmp(name, "warning") == 0 ? WARNING : NOTE;
}

enum severity report_worst(struct json_object *report)
{
    struct json_object *findings = json_object_object_get(report, "findings");
    enum severity worst = NOTE;

    for (size_t i = 0; i < json_object_array_length(findings); i++) {
        enum severity severity = severity_of(json_object_array_get_idx(findings, i));

        worst = severity > worst ? severity : worst;
    }
    return worst;
}

/* The same finding on another node adds that node's name to it. */
static void merge_finding(struct json_object *findings, struct json_object *finding)
{
    const char *node = json_object_get_string(json_object_array_get_idx(json_object_object_get(finding, "nodes"), 0));

    for (size_t i = 0; i < json_object_array_length(findings); i++) {
        struct json_object *other = json_object_array_get_idx(findings, i), *nodes = json_object_object_get(other, "nodes");
        bool named = false;

        if (strcmp(text_of(other, "what"), text_of(finding, "what")) != 0 || severity_of(other) != severity_of(finding))
            continue;
        for (size_t n = 0; n < json_object_array_length(nodes); n++)
            named = named || strcmp(json_object_get_string(json_object_array_get_idx(nodes, n)), node) == 0;
        if (!named)
            json_object_array_add(nodes, json_object_new_string(node));
        return;
    }
    json_object_array_add(findings, json_object_get(finding));
}

static void move_all(struct json_object *from, const char *key, struct json_object *to)
{
    struct json_object *list = json_object_object_get(from, key);

    for (size_t i = 0; i < json_object_array_length(list); i++)
        json_object_array_add(to, json_object_get(json_object_array_get_idx(list, i)));
}

static void merge(struct json_object *report, struct json_object *answer)
{
    struct json_object *facts = json_object_object_get(answer, "facts"), *rank = json_object_object_get(facts, "rank");
    struct json_object *findings = json_object_object_get(answer, "findings");

    if (rank)
        json_object_array_add(json_object_object_get(report, "ranks"), json_object_get(rank));
    if (json_object_get_boolean(json_object_object_get(answer, "leader"))) {
        json_object_object_del(facts, "rank");
        json_object_array_add(json_object_object_get(report, "nodes"), json_object_get(facts));
    }
    move_all(answer, "pairs", json_object_object_get(report, "pairs"));
    for (size_t i = 0; i < json_object_array_length(findings); i++)
        merge_finding(json_object_object_get(report, "findings"), json_object_array_get_idx(findings, i));
}

/*
 * What only all of them together show
 */

static void check_same(struct doctor *doctor, struct json_object *ranks, const char *key, const char *what)
{
    struct json_object *first = json_object_array_get_idx(ranks, 0);

    for (size_t i = 1; i < json_object_array_length(ranks); i++) {
        struct json_object *rank = json_object_array_get_idx(ranks, i);

        if (strcmp(text_of(first, key), text_of(rank, key)) == 0)
            continue;
        find(doctor, FAULT, key, "ranks crash, or hang in MPI_Init", "install the same one on every node, and look at PATH and "
             "LD_LIBRARY_PATH there", "ranks 0 and %zu run different %s: '%s' on %s, '%s' on %s", i, what, text_of(first, key),
             text_of(first, "host"), text_of(rank, key), text_of(rank, "host"));
        return;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Pairs of one kind (on a node, between nodes) should be about as fast as each other. */
static void check_speed(struct doctor *doctor, struct json_object *pairs, bool same_node)
{
    size_t n = json_object_array_length(pairs), kind = 0;
    double *speeds = calloc(n + 1, sizeof(*speeds)), median;

    if (!speeds)
        return;
    for (size_t i = 0; i < n; i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);

        if (json_object_get_boolean(json_object_object_get(pair, "same_node")) == same_node)
            speeds[kind++] = number_of(pair, "gb_s");
    }
    qsort(speeds, kind, sizeof(*speeds), compare);
    median = kind ? speeds[kind / 2] : 0;
    for (size_t i = 0; i < n && kind >= PAIRS_TO_COMPARE; i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);

        if (json_object_get_boolean(json_object_object_get(pair, "same_node")) == same_node &&
            number_of(pair, "gb_s") < SLOW * median)
            find(doctor, WARNING, "speed", "every collective waits for its slowest pair", same_node ? "look for another program on "
                 "these devices, and at their link (nvidia-smi topo -m; lspci -vv: LnkSta)" : "look at the link of these nodes: "
                 "rate, errors, switch port", "ranks %d and %d %s: %.2f GB/s, where the median is %.2f",
                 (int)number_of(pair, "a"), (int)number_of(pair, "b"), same_node ? "of one node" : "on two nodes",
                 number_of(pair, "gb_s"), median);
    }
    free(speeds);
}

static void place_pairs(struct json_object *pairs, struct json_object *ranks)
{
    for (size_t i = 0; i < json_object_array_length(pairs); i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);
        struct json_object *a = json_object_array_get_idx(ranks, (size_t)number_of(pair, "a"));
        struct json_object *b = json_object_array_get_idx(ranks, (size_t)number_of(pair, "b"));

        json_object_object_add(pair, "same_node", json_object_new_boolean(number_of(a, "node") == number_of(b, "node")));
    }
}

static struct json_object *report_new(const struct doctor *doctor)
{
    static const char *const lists[] = {"nodes", "ranks", "pairs", "findings"};
    struct json_object *report = json_object_new_object();

    add_text(report, "hetmpi", hetmpi_version());
    json_object_object_add(report, "seconds", json_object_new_double(doctor->options.seconds));
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        json_object_object_add(report, lists[i], json_object_new_array());
    return report;
}

/* The common checks add to rank 0's own list, which is merged last. */
static void finish(struct doctor *doctor, struct json_object *report)
{
    struct json_object *ranks = json_object_object_get(report, "ranks"), *pairs = json_object_object_get(report, "pairs");

    json_object_put(doctor->findings);
    doctor->findings = json_object_new_array();
    check_same(doctor, ranks, "mpi", "MPI libraries");
    place_pairs(pairs, ranks);
    check_speed(doctor, pairs, true);
    check_speed(doctor, pairs, false);
    for (size_t i = 0; i < json_object_array_length(doctor->findings); i++)
        merge_finding(json_object_object_get(report, "findings"), json_object_array_get_idx(doctor->findings, i));
    add_text(report, "verdict", json_object_array_length(json_object_object_get(report, "findings")) == 0 ?
             "healthy" : severity_names[report_worst(report)]);
}

static struct json_object *answer_of(const struct doctor *doctor)
{
    struct json_object *answer = json_object_new_object();

    json_object_object_add(answer, "leader", json_object_new_boolean(doctor->leader));
    json_object_object_add(answer, "facts", json_object_get(doctor->facts));
    json_object_object_add(answer, "findings", json_object_get(doctor->findings));
    json_object_object_add(answer, "pairs", json_object_get(doctor->pairs));
    return answer;
}

static void *need(void *memory)
{
    if (!memory)
        MPI_Abort(MPI_COMM_WORLD, EXIT_NOT_RUN);
    return memory;
}

static void merge_all(struct json_object *report, const char *all, const int *lengths, const int *places, int n)
{
    for (int i = 0; i < n; i++) {
        struct json_tokener *tokener = need(json_tokener_new());
        struct json_object *answer = need(json_tokener_parse_ex(tokener, all + places[i], lengths[i]));

        merge(report, answer);
        json_object_put(answer);
        json_tokener_free(tokener);
    }
}

struct json_object *gather(struct doctor *doctor)
{
    struct json_object *answer = answer_of(doctor), *report = NULL;
    const char *text = json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN);
    int length = (int)strlen(text), started, total = 0;
    int *lengths = need(calloc((size_t)doctor->ranks, sizeof(*lengths))), *places = need(calloc((size_t)doctor->ranks, sizeof(*places)));
    char *all = NULL;

    MPI_Initialized(&started);
    if (!started) {
        report = report_new(doctor);
        merge(report, answer);
        finish(doctor, report);
    } else {
        MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int i = 0; i < doctor->ranks; i++) {
            places[i] = total;
            total += lengths[i];
        }
        all = need(malloc((size_t)total + 1));
        MPI_Gatherv(text, length, MPI_CHAR, all, lengths, places, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (doctor->rank == 0) {
            report = report_new(doctor);
            merge_all(report, all, lengths, places, doctor->ranks);
            finish(doctor, report);
        }
    }
    free(all);
    free(places);
    free(lengths);
    json_object_put(answer);
    return report;
}
