// System V IPC: shared memory, semaphores, message queues.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

enum { PAGE = 4096 };

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

struct message {
    long type;
    char text[64];
};

static void interrupt(int signal) { (void)signal; }

static int operate(int id, int number, int change, int flags) {
    struct sembuf operation = {number, change, flags};
    return semop(id, &operation, 1);
}

static int value(int id, int number) { return semctl(id, number, GETVAL); }

static void segments(void) {
    key_t key = 0x4a000000 | (getpid() & 0xffffff);
    FAILS(shmget(key, PAGE, 0600), ENOENT);
    int id = shmget(key, 3 * PAGE - 5, IPC_CREAT | IPC_EXCL | 0640);
    CHECK(id >= 0);
    GIVES(shmget(key, 0, 0), id);
    GIVES(shmget(key, 3 * PAGE - 5, IPC_CREAT), id);
    FAILS(shmget(key, PAGE, IPC_CREAT | IPC_EXCL), EEXIST);
    FAILS(shmget(key, 3 * PAGE, 0), EINVAL);
    FAILS(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    char *a = shmat(id, NULL, 0);
    CHECK(a != (void *)-1 && (uintptr_t)a % PAGE == 0 && a[0] == 0);
    strcpy(a + PAGE, "shared");
    char *b = shmat(id, NULL, SHM_RDONLY);
    CHECK(b != a && !strcmp(b + PAGE, "shared"));
    FAILS(mprotect(b, PAGE, PROT_READ | PROT_WRITE), EACCES);
    struct shmid_ds status;
    GIVES(shmctl(id, IPC_STAT, &status), 0);
    CHECK(status.shm_segsz == 3 * PAGE - 5 && status.shm_nattch == 2);
    CHECK(status.shm_cpid == getpid() && status.shm_lpid == getpid());
    CHECK(status.shm_perm.__key == key && status.shm_perm.mode == 0640);
    CHECK(status.shm_atime != 0 && status.shm_dtime == 0 && status.shm_ctime != 0);
    CHILD_EXITS(0, {
        struct shmid_ds in_child;
        strcat(a + PAGE, " by a child");
        _exit(shmctl(id, IPC_STAT, &in_child) == 0 && in_child.shm_nattch == 4 ? 0 : 1);
    });
    CHECK(!strcmp(b + PAGE, "shared by a child"));
    GIVES(shmctl(id, IPC_STAT, &status), 0);
    GIVES(status.shm_nattch, 2);
    GIVES(shmdt(b), 0);
    FAILS(shmdt(b), EINVAL);
    FAILS(shmdt(a + 1), EINVAL);
    GIVES(shmctl(id, IPC_STAT, &status), 0);
    CHECK(status.shm_nattch == 1 && status.shm_dtime != 0);
    // At an address.
    char *room = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS((long)shmat(id, room, 0), EINVAL);
    FAILS((long)shmat(id, room + 7, 0), EINVAL);
    FAILS((long)shmat(id, NULL, SHM_REMAP), EINVAL);
    GIVES(shmat(id, room + PAGE + 7, SHM_RND | SHM_REMAP), room + PAGE);
    CHECK(!strcmp(room + 2 * PAGE, "shared by a child"));
    GIVES(munmap(room + 2 * PAGE, PAGE), 0);
    GIVES(shmdt(room + PAGE), 0);
    FAILS(shmdt(room + PAGE), EINVAL);
    munmap(room, 16 * PAGE);
    // Owner and mode.
    status.shm_perm.mode = 0600;
    GIVES(shmctl(id, IPC_SET, &status), 0);
    GIVES(shmctl(id, IPC_STAT, &status), 0);
    GIVES(status.shm_perm.mode, 0600);
    if (getuid() == 0)
        CHILD_EXITS(0, {
            if (setgid(65534) || setuid(65534)) _exit(2);
            int bad = shmget(key, 0, 0400) == -1 && errno == EACCES;
            bad += shmat(id, NULL, SHM_RDONLY) == (void *)-1 && errno == EACCES;
            bad += shmctl(id, IPC_RMID, NULL) == -1 && errno == EPERM;
            bad += shmctl(id, IPC_STAT, &status) == -1 && errno == EACCES;
            _exit(bad == 4 ? 0 : 1);
        });
    // A removed segment lives while it is attached, without its key.
    GIVES(shmctl(id, IPC_RMID, NULL), 0);
    FAILS(shmget(key, 0, 0), ENOENT);
    GIVES(shmctl(id, IPC_STAT, &status), 0);
    CHECK((status.shm_perm.mode & SHM_DEST) && status.shm_nattch == 1);
    CHECK(!strcmp(a + PAGE, "shared by a child"));
    char *again = shmat(id, NULL, 0);
    CHECK(again != (void *)-1 && !strcmp(again + PAGE, "shared by a child"));
    GIVES(shmdt(again), 0);
    GIVES(shmdt(a), 0);
    FAILS_EITHER(shmctl(id, IPC_STAT, &status), EINVAL, EIDRM);
    FAILS_EITHER((long)shmat(id, NULL, 0), EINVAL, EIDRM);
    FAILS(shmctl(-1, IPC_STAT, &status), EINVAL);
    FAILS((long)shmat(-1, NULL, 0), EINVAL);
    struct shminfo info;
    CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&info) >= 0);
    CHECK(info.shmmni == 4096 && info.shmmin == 1);
}

static void semaphores(void) {
    int id = semget(IPC_PRIVATE, 3, 0600);
    CHECK(id >= 0);
    FAILS(semget(IPC_PRIVATE, 0, 0600), EINVAL);
    FAILS(semget(IPC_PRIVATE, -1, 0600), EINVAL);
    FAILS(semget(IPC_PRIVATE, 1000000, 0600), EINVAL);
    GIVES(semctl(id, 1, SETVAL, (union semun){.val = 4}), 0);
    FAILS(semctl(id, 1, SETVAL, (union semun){.val = 40000}), ERANGE);
    FAILS(semctl(id, 3, SETVAL, (union semun){.val = 4}), EINVAL);
    FAILS(semctl(id, 3, GETVAL), EINVAL);
    unsigned short all[3] = {9, 9, 9};
    GIVES(semctl(id, 0, GETALL, (union semun){.array = all}), 0);
    CHECK(all[0] == 0 && all[1] == 4 && all[2] == 0);
    // All or none.
    struct sembuf both[2] = {{0, 1, 0}, {1, -5, IPC_NOWAIT}};
    FAILS(semop(id, both, 2), EAGAIN);
    GIVES(value(id, 0), 0);
    both[1].sem_op = -4;
    GIVES(semop(id, both, 2), 0);
    CHECK(value(id, 0) == 1 && value(id, 1) == 0);
    GIVES(semctl(id, 0, GETPID), getpid());
    FAILS(operate(id, 3, 1, 0), EFBIG);
    FAILS(operate(id, 0, 32767, 0), ERANGE);
    FAILS(semop(id, both, 0), EINVAL);
    FAILS(semop(id, both, 501), E2BIG);
    FAILS(semop(-1, both, 1), EINVAL);
    FAILS(operate(id, 0, 0, IPC_NOWAIT), EAGAIN);
    // Waiting, in the order of arrival.
    pid_t first = CHILD(_exit(operate(id, 2, -2, 0) ? 1 : 0));
    wait_until_asleep(first);
    pid_t second = CHILD(_exit(operate(id, 2, -1, 0) ? 1 : 0));
    wait_until_asleep(second);
    GIVES(semctl(id, 2, GETNCNT), 2);
    GIVES(operate(id, 2, 2, 0), 0);
    GIVES(status_of(first), 0);
    GIVES(semctl(id, 2, GETNCNT), 1);
    GIVES(operate(id, 2, 1, 0), 0);
    GIVES(status_of(second), 0);
    GIVES(value(id, 2), 0);
    pid_t zero = CHILD(_exit(operate(id, 0, 0, 0) ? 1 : 0));
    wait_until_asleep(zero);
    GIVES(semctl(id, 0, GETZCNT), 1);
    GIVES(operate(id, 0, -1, 0), 0);
    GIVES(status_of(zero), 0);
    // A time limit and a signal.
    struct timespec limit = {0, 20000000}, wrong = {0, 2000000000};
    struct sembuf down = {0, -1, 0};
    FAILS(semtimedop(id, &down, 1, &limit), EAGAIN);
    FAILS(semtimedop(id, &down, 1, &wrong), EINVAL);
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pid_t waiting = CHILD(_exit(operate(id, 0, -1, 0) == -1 && errno == EINTR ? 0 : 1));
    wait_until_asleep(waiting);
    kill(waiting, SIGUSR1);
    GIVES(status_of(waiting), 0);
    GIVES(semctl(id, 0, GETNCNT), 0);
    pid_t killed = CHILD(operate(id, 0, -1, 0));
    wait_until_asleep(killed);
    kill(killed, SIGKILL);
    CHECK(WIFSIGNALED(status_of(killed)));
    GIVES(semctl(id, 0, GETNCNT), 0);
    // A process's end undoes.
    CHILD_EXITS(0, _exit(operate(id, 0, 5, SEM_UNDO) || operate(id, 1, 2, 0)));
    CHECK(value(id, 0) == 0 && value(id, 1) == 2);
    pid_t holder = CHILD({
        operate(id, 1, -2, SEM_UNDO);
        pause();
    });
    wait_until_asleep(holder);
    waiting = CHILD(_exit(operate(id, 1, -1, 0) ? 1 : 0));
    wait_until_asleep(waiting);
    kill(holder, SIGKILL);
    status_of(holder);
    GIVES(status_of(waiting), 0);
    GIVES(value(id, 1), 1);
    // Removal.
    waiting = CHILD(_exit(operate(id, 0, -1, 0) == -1 && errno == EIDRM ? 0 : 1));
    wait_until_asleep(waiting);
    struct semid_ds status;
    GIVES(semctl(id, 0, IPC_STAT, (union semun){.buf = &status}), 0);
    CHECK(status.sem_nsems == 3 && status.sem_otime != 0 && status.sem_perm.mode == 0600);
    GIVES(semctl(id, 0, IPC_RMID), 0);
    GIVES(status_of(waiting), 0);
    FAILS_EITHER(semctl(id, 0, GETVAL), EINVAL, EIDRM);
    // Permission to change.
    key_t key = 0x4b000000 | (getpid() & 0xffffff);
    id = semget(key, 1, IPC_CREAT | 0644);
    GIVES(semget(key, 1, 0600), id);
    FAILS(semget(key, 2, 0), EINVAL);
    if (getuid() == 0)
        CHILD_EXITS(0, {
            if (setgid(65534) || setuid(65534)) _exit(2);
            int bad = operate(id, 0, 1, 0) == -1 && errno == EACCES;
            bad += value(id, 0) == 0;
            bad += semctl(id, 0, IPC_RMID) == -1 && errno == EPERM;
            _exit(bad == 3 ? 0 : 1);
        });
    GIVES(semctl(id, 0, IPC_RMID), 0);
}

static void queues(void) {
    int id = msgget(IPC_PRIVATE, 0600);
    CHECK(id >= 0);
    struct message message = {3, "three"}, got;
    GIVES(msgsnd(id, &message, 6, 0), 0);
    message = (struct message){1, "one"};
    GIVES(msgsnd(id, &message, 4, 0), 0);
    message = (struct message){2, "two"};
    GIVES(msgsnd(id, &message, 4, 0), 0);
    message.type = 0;
    FAILS(msgsnd(id, &message, 1, 0), EINVAL);
    message.type = 1;
    FAILS(msgsnd(id, &message, -1, 0), EINVAL);
    FAILS(msgsnd(id, &message, 8193, 0), EINVAL);
    FAILS(msgrcv(id, &got, 2, 0, 0), E2BIG);
    GIVES(msgrcv(id, &got, 64, -2, 0), 4);
    CHECK(got.type == 1 && !strcmp(got.text, "one"));
    GIVES(msgrcv(id, &got, 64, 3, MSG_EXCEPT), 4);
    CHECK(got.type == 2);
    FAILS(msgrcv(id, &got, 64, 7, IPC_NOWAIT), ENOMSG);
    GIVES(msgrcv(id, &got, 2, 0, MSG_NOERROR), 2);
    CHECK(got.type == 3 && !memcmp(got.text, "th", 2));
    // Waiting.
    pid_t reader = CHILD(_exit(msgrcv(id, &got, 64, 5, 0) == 3 && got.type == 5 ? 0 : 1));
    wait_until_asleep(reader);
    message = (struct message){4, "xx"};
    GIVES(msgsnd(id, &message, 3, 0), 0);
    message.type = 5;
    GIVES(msgsnd(id, &message, 3, 0), 0);
    GIVES(status_of(reader), 0);
    struct msqid_ds status;
    GIVES(msgctl(id, IPC_STAT, &status), 0);
    CHECK(status.msg_qnum == 1 && status.msg_qbytes == 16384 && status.__msg_cbytes == 3);
    CHECK(status.msg_lspid == getpid() && status.msg_lrpid == reader && status.msg_stime && status.msg_rtime);
    // Room.
    status.msg_qbytes = 8;
    GIVES(msgctl(id, IPC_SET, &status), 0);
    FAILS(msgsnd(id, &message, 6, IPC_NOWAIT), EAGAIN);
    pid_t writer = CHILD(_exit(msgsnd(id, &message, 6, 0) ? 1 : 0));
    wait_until_asleep(writer);
    GIVES(msgrcv(id, &got, 64, 0, 0), 3);
    GIVES(status_of(writer), 0);
    GIVES(msgrcv(id, &got, 64, 0, 0), 6);
    // A signal, and removal.
    reader = CHILD(_exit(msgrcv(id, &got, 64, 0, 0) == -1 && errno == EINTR ? 0 : 1));
    wait_until_asleep(reader);
    kill(reader, SIGUSR1);
    GIVES(status_of(reader), 0);
    reader = CHILD(_exit(msgrcv(id, &got, 64, 0, 0) == -1 && errno == EIDRM ? 0 : 1));
    wait_until_asleep(reader);
    GIVES(msgctl(id, IPC_RMID, NULL), 0);
    GIVES(status_of(reader), 0);
    FAILS_EITHER(msgctl(id, IPC_STAT, &status), EINVAL, EIDRM);
    FAILS(msgget(0x4c000000 | (getpid() & 0xffffff), 0600), ENOENT);
}

// Queues that need more memory than a small machine has: what is refused, is refused with an error,
// and the machine works.
static void full(void) {
    enum { QUEUES = 4000, EACH = 2, LONGEST = 8192 };
    static struct { long type; char text[LONGEST]; } message = {.type = 1};
    static int ids[QUEUES];
    int sent[2] = {0};
    for (int round = 0; round < 2; round++) {
        int error = 0, queues = 0;
        for (; queues < QUEUES && !error; queues++) {
            ids[queues] = msgget(IPC_PRIVATE, 0600);
            if (ids[queues] < 0) break;
            for (int i = 0; i < EACH && !error; i++) {
                if (msgsnd(ids[queues], &message, LONGEST, 0) == 0) sent[round]++;
                else error = errno;
            }
        }
        CHECK(queues > 100 && (error == 0 || error == ENOMEM));
        // There is memory for programs.
        char *memory = malloc(16 << 20);
        CHECK(memory != NULL);
        memset(memory, 1, 16 << 20);
        free(memory);
        CHILD_EXITS(7, _exit(7));
        // Empty messages count too; a message that is taken makes room.
        if (error) {
            int count = 0;
            while (msgsnd(ids[queues - 1], &message, 0, IPC_NOWAIT) == 0) count++;
            CHECK((errno == ENOMEM && count < LONGEST) || errno == EAGAIN);
            GIVES(msgrcv(ids[0], &message, LONGEST, 0, 0), LONGEST);
            GIVES(msgsnd(ids[0], &message, LONGEST, 0), 0);
        }
        int removed = 0;
        for (int i = 0; i < queues; i++) removed += msgctl(ids[i], IPC_RMID, NULL) == 0;
        GIVES(removed, queues);
    }
    // All of it was free again.
    GIVES(sent[1], sent[0]);
    printf("%d messages\n", sent[0]);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    if (!strcmp(arguments[count - 1], "full")) {
        full();
        return finish("ipc");
    }
    segments();
    semaphores();
    queues();
    return finish("ipc");
}
