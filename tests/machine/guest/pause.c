/* The sandbox container's program: it holds the pod's namespaces and waits to be told to end. */
#include <signal.h>
#include <unistd.h>

static void end(int signal) { _exit(0); }

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) pause();
}
