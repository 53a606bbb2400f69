package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// daemon is a program that runs until it is stopped, or the test ends.
type daemon struct {
	path, log string
	args      []string
	process   *os.Process
	ended     chan struct{}
}

func newDaemon(path, log string, args ...string) *daemon {
	return &daemon{path: path, log: log, args: args}
}

func (d *daemon) start() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	started := make(chan error)
	d.ended = make(chan struct{})
	go func() {
		defer log.Close()
		// The kernel ends the program with the thread that started it.
		runtime.LockOSThread()
		cmd := exec.Command(d.path, d.args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		d.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(d.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w: build it by test/tools/build etcd kubernetes", d.path, err)
	}
	return nil
}

// stop kills the program: etcd and the API server are made for that.
func (d *daemon) stop() {
	if d == nil || d.process == nil {
		return
	}
	_ = d.process.Kill() // it may have ended already
	<-d.ended
}

// wait returns when ready does without an error, or the daemon has ended.
func (d *daemon) wait(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("%s has ended:\n%s", d.path, d.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w:\n%s", d.path, err, d.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail is the end of the daemon's log.
func (d *daemon) tail() string {
	if d == nil {
		return ""
	}
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
