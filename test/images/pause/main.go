// Pause holds a pod's namespaces until it gets a signal to end and, as the first process of a
// shared PID namespace, reaps orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	children, end := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	reap() // who ended before this program listened
	for {
		select {
		case <-children:
			reap()
		case <-end:
			return
		}
	}
}

// reap collects all children that ended: one signal may stand for several of them.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
