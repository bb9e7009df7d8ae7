/* Runs a fuzz target on kept inputs: files, or all files of folders. Under libFuzzer its own main does that. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long size = -1;
    int code = -1;

    if (file && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size >= 0)
        data = malloc((size_t)size + 1);
    if (data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)size, file) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        code = 0;
    }
    if (code)
        perror(path);
    free(data);
    if (file)
        fclose(file);
    return code;
}

/* Returns how many inputs were run, -1 after an error. */
static int run_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char name[4096];
    int n = 0;

    if (!folder)
        perror(path);
    while (folder && n >= 0 && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        n = run_file(name) ? -1 : n + 1;
    }
    if (folder)
        closedir(folder);
    return folder ? n : -1;
}

int main(int argc, char **argv)
{
    struct stat what;
    int all = 0;

    for (int i = 1; i < argc; i++) {
        int n = stat(argv[i], &what) == 0 && S_ISDIR(what.st_mode) ? run_folder(argv[i]) : run_file(argv[i]) ? -1 : 1;
        if (n < 0)
            return EXIT_FAILURE;
        all += n;
    }
    printf("%d inputs\n", all);
    return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
