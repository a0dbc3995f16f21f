/*
 * A stand-in for Pyxis, compiled by the tests: a SPANK plugin with the options of NVIDIA's (written from its README and
 * from Enroot's documentation), so that Slurm itself parses what seatrial gives to srun.
 *
 * plugstack.conf: required pyxis.so FOLDER
 * The image [USER@][REGISTRY#]IMAGE[:TAG] is the root file system FOLDER/REGISTRY+IMAGE+TAG, with / as + too; the file
 * PATH.sqsh is PATH.sqsh.root. ROOT/etc/environment has the image's variables, which win over those of the job unless
 * --container-env names them. FOLDER/imports has an empty file for each time that a node unpacked an image: NODE.NAME for a
 * container with a name, which is there afterwards, else NODE.JOB.STEP. Every task has a private /tmp and /run; tasks of
 * Enroot on one node share them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, ENV, WORKDIR, NAME, FLAG };

static char *image, *mounts, *env_names, *workdir, *name;

static int keep(int what, const char *value, int remote)
{
	char **place[] = {&image, &mounts, &env_names, &workdir, &name};

	(void)remote;
	if (what == FLAG)
		return 0;
	if (!value || !*value) {
		slurm_error("pyxis: an option needs an argument");
		return -1;
	}
	free(*place[what]);
	*place[what] = strdup(value);
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "[pyxis] image", 1, IMAGE, keep},
	{"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] mounts", 1, MOUNTS, keep},
	{"container-env", "NAME[,NAME...]", "[pyxis] variables", 1, ENV, keep},
	{"container-workdir", "PATH", "[pyxis] working directory", 1, WORKDIR, keep},
	{"container-name", "NAME", "[pyxis] keep the container", 1, NAME, keep},
	{"container-mount-home", NULL, "[pyxis] mount the home", 0, FLAG, keep},
	{"no-container-mount-home", NULL, "[pyxis] do not mount the home", 0, FLAG, keep},
	{"container-remap-root", NULL, "[pyxis] be root inside", 0, FLAG, keep},
	{"no-container-remap-root", NULL, "[pyxis] do not be root inside", 0, FLAG, keep},
	{"container-entrypoint", NULL, "[pyxis] run the entry point", 0, FLAG, keep},
	{"no-container-entrypoint", NULL, "[pyxis] do not run the entry point", 0, FLAG, keep},
	SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	(void)ac, (void)av;
	for (int i = 0; options[i].name; i++)
		if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

static int failed(const char *what, const char *name)
{
	slurm_error("pyxis: %s: %s: %s", what, name, strerror(errno));
	return -1;
}

static int root_of(const char *folder, char *root, size_t size)
{
	regex_t reference;
	regmatch_t part[7];
	int no_match;

	if (image[0] == '/' || image[0] == '.') {
		snprintf(root, size, "%s.root", image);
		return access(image, R_OK) ? failed("no such image", image) : 0;
	}
	regcomp(&reference, "^(([^@]+)@)?(([^#]+)#)?([a-z0-9/._-]+)(:[[:alnum:]._:-]+)?$", REG_EXTENDED);
	no_match = regexec(&reference, image, 7, part, 0);
	regfree(&reference);
	if (no_match) {
		slurm_error("pyxis: [ERROR] Invalid image reference: docker://%s", image);
		return -1;
	}
	const char *registry = part[4].rm_so < 0 ? "registry-1.docker.io" : image + part[4].rm_so;
	const char *tag = part[6].rm_so < 0 ? "latest" : image + part[6].rm_so + 1;
	int registry_len = part[4].rm_so < 0 ? (int)strlen(registry) : part[4].rm_eo - part[4].rm_so;
	int name_len = part[5].rm_eo - part[5].rm_so;
	int start = snprintf(root, size, "%s/", folder);

	snprintf(root + start, size - start, "%.*s+%.*s+%s", registry_len, registry, name_len, image + part[5].rm_so, tag);
	for (char *c = root + start; *c; c++)
		if (*c == '/')
			*c = '+';
	return access(root, X_OK) ? failed("importing docker image failed", image) : 0;
}

static void make_folders(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		mkdir(path, 0755);
	}
	mkdir(path, 0755);
}

static int bind_one(const char *root, char *entry)
{
	char target[4096];
	char *source = strsep(&entry, ":"), *inside = strsep(&entry, ":");

	if (!*source || !inside || *inside != '/') {
		slurm_error("pyxis: --container-mounts: invalid format: %s", source);
		return -1;
	}
	snprintf(target, sizeof(target), "%s%s", root, inside);
	make_folders(target);
	if (mount(source, target, NULL, MS_BIND | MS_REC, NULL))
		return failed("mount", source);
	if (entry && strstr(entry, "ro") && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))
		return failed("mount read-only", source);
	return 0;
}

static int mount_all(const char *root)
{
	const char *shared[] = {"/usr", "/proc", "/sys", "/dev", "/dev/shm"}, *private[] = {"/tmp", "/run"};
	char path[4096], *rest = mounts ? strdup(mounts) : NULL, *entry;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return failed("unshare", root);
	for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
		snprintf(path, sizeof(path), "%s%s", root, shared[i]);
		if (mount(shared[i], path, NULL, MS_BIND, NULL))
			return failed("mount", path);
	}
	for (size_t i = 0; i < sizeof(private) / sizeof(*private); i++) {
		snprintf(path, sizeof(path), "%s%s", root, private[i]);
		if (mount("tmpfs", path, "tmpfs", 0, "mode=1777"))
			return failed("mount", path);
	}
	while ((entry = strsep(&rest, ",")))
		if (bind_one(root, entry))
			return -1;
	return 0;
}

static bool is_named(const char *name)
{
	size_t length = strlen(name);

	for (const char *at = env_names; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "")
		if (!strncmp(at, name, length) && (at[length] == ',' || !at[length]))
			return true;
	return false;
}

static int take_environment(spank_t sp, const char *root)
{
	char path[4096], line[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/etc/environment", root);
	if (!(file = fopen(path, "r")))
		return failed("open", path);
	while (fgets(line, sizeof(line), file)) {
		char *value = strchr(line, '=');

		line[strcspn(line, "\n")] = 0;
		if (value) {
			*value++ = 0;
			spank_setenv(sp, line, value, !is_named(line));
		}
	}
	fclose(file);
	return 0;
}

static void count_import(spank_t sp, const char *folder)
{
	char path[4096], node[256] = "";
	uint32_t job = 0, step = 0;
	int file;

	gethostname(node, sizeof(node) - 1);
	spank_get_item(sp, S_JOB_ID, &job);
	spank_get_item(sp, S_JOB_STEPID, &step);
	if (name)
		snprintf(path, sizeof(path), "%s/imports/%s.%s", folder, node, name);
	else
		snprintf(path, sizeof(path), "%s/imports/%s.%u.%u", folder, node, job, step);
	if ((file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644)) >= 0)
		close(file);
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
	char root[4096];

	if (!image)
		return 0;
	if (ac > 0)
		count_import(sp, av[0]);
	if (ac < 1 || root_of(av[0], root, sizeof(root)) || take_environment(sp, root) || mount_all(root))
		return -1;
	if (chroot(root) || chdir(workdir ? workdir : "/"))
		return failed("chroot", root);
	return 0;
}
