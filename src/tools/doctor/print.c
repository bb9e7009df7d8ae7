/* The report, for people and for programs: see doctor.h. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

static size_t length_of(struct json_object *object, const char *key)
{
    struct json_object *list = json_object_object_get(object, key);

    return list ? json_object_array_length(list) : 0;
}

static void print_node(struct json_object *node)
{
    struct json_object *gpus = json_object_object_get(node, "gpus"), *nics = json_object_object_get(node, "nics");
    struct json_object *distances = json_object_object_get(node, "distances");

    printf("%s: Linux %s, %zu GPU%s, %zu RDMA port%s\n", text_of(node, "host"), text_of(node, "kernel"),
           length_of(node, "gpus"), length_of(node, "gpus") == 1 ? "" : "s", length_of(node, "nics"),
           length_of(node, "nics") == 1 ? "" : "s");
    for (size_t i = 0; i < length_of(node, "gpus"); i++) {
        struct json_object *gpu = json_object_array_get_idx(gpus, i);

        printf("  GPU %s: %s, driver %s, NUMA node %d\n", text_of(gpu, "pci"), text_of(gpu, "vendor"), text_of(gpu, "driver"),
               (int)number_of(gpu, "numa"));
    }
    for (size_t i = 0; i < length_of(node, "nics"); i++) {
        struct json_object *nic = json_object_array_get_idx(nics, i);

        printf("  NIC %s port %s: %s, %s, %s, NUMA node %d", text_of(nic, "name"), text_of(nic, "port"), text_of(nic, "state"),
               text_of(nic, "link"), text_of(nic, "rate"), (int)number_of(nic, "numa"));
        if (*text_of(nic, "interface"))
            printf(", %s MTU %d", text_of(nic, "interface"), (int)number_of(nic, "mtu"));
        printf("\n");
    }
    for (size_t i = 0; i < length_of(node, "distances"); i++) {
        struct json_object *distance = json_object_array_get_idx(distances, i);

        printf("  GPU %s to NIC %s: %s\n", text_of(distance, "gpu"), text_of(distance, "nic"), text_of(distance, "distance"));
    }
}

static void print_ranks(struct json_object *ranks)
{
    for (size_t i = 0; i < json_object_array_length(ranks); i++) {
        struct json_object *rank = json_object_array_get_idx(ranks, i);

        if (i == 0)
            printf("\n%s (takes device memory: %s)\n%s\n", text_of(rank, "mpi"), text_of(rank, "gpu_aware_mpi"),
                   text_of(rank, "hetmpi"));
        printf("  rank %d on %s: %s", (int)number_of(rank, "rank"), text_of(rank, "host"), text_of(rank, "vendor"));
        if (number_of(rank, "device") >= 0)
            printf(" device %d", (int)number_of(rank, "device"));
        printf(", node %d, island %d, provider %s, wire %s\n", (int)number_of(rank, "node"), (int)number_of(rank, "island"),
               text_of(rank, "provider"), text_of(rank, "wire"));
    }
}

static void print_pairs(struct json_object *pairs)
{
    for (size_t i = 0; i < json_object_array_length(pairs); i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);

        if (i == 0)
            printf("\n%6s %6s %12s %14s\n", "rank", "rank", "latency", "each way");
        printf("%6d %6d %9.2f us %9.2f GB/s%s\n", (int)number_of(pair, "a"), (int)number_of(pair, "b"),
               number_of(pair, "latency_us"), number_of(pair, "gb_s"),
               json_object_get_boolean(json_object_object_get(pair, "same_node")) ? "" : "  between nodes");
    }
}

static void print_finding(struct json_object *finding)
{
    struct json_object *nodes = json_object_object_get(finding, "nodes");

    printf("\n%s: %s\n", text_of(finding, "severity"), text_of(finding, "what"));
    printf("  where: ");
    for (size_t i = 0; i < json_object_array_length(nodes); i++)
        printf("%s%s", i ? ", " : "", json_object_get_string(json_object_array_get_idx(nodes, i)));
    printf("\n");
    if (*text_of(finding, "cost"))
        printf("  costs: %s\n", text_of(finding, "cost"));
    if (*text_of(finding, "mend"))
        printf("  mend:  %s\n", text_of(finding, "mend"));
}

static void print_text(struct json_object *report)
{
    static const char *const order[] = {"fault", "warning", "note"};
    struct json_object *nodes = json_object_object_get(report, "nodes"), *findings = json_object_object_get(report, "findings");

    for (size_t i = 0; i < json_object_array_length(nodes); i++)
        print_node(json_object_array_get_idx(nodes, i));
    print_ranks(json_object_object_get(report, "ranks"));
    print_pairs(json_object_object_get(report, "pairs"));
    for (size_t s = 0; s < sizeof(order) / sizeof(order[0]); s++)
        for (size_t i = 0; i < json_object_array_length(findings); i++)
            if (strcmp(text_of(json_object_array_get_idx(findings, i), "severity"), order[s]) == 0)
                print_finding(json_object_array_get_idx(findings, i));
    printf("\nverdict: %s\n", text_of(report, "verdict"));
}

int report_print(struct json_object *report, const struct options *options)
{
    if (options->json)
        printf("%s\n", json_object_to_json_string_ext(report, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    else
        print_text(report);
    return fflush(stdout) || ferror(stdout);
}
