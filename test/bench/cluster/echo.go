package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// typist is a pod whose shell is on a terminal, as a guest's is on its console.
const typist = `apiVersion: v1
kind: Pod
metadata: {name: typist, namespace: bench}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "%s", command: [sh], stdin: true, tty: true}
`

// keystrokes are how many are timed on each terminal.
const keystrokes = 100

// echo measures how long a key that is typed takes to be seen, on a guest's console and on a container's
// terminal. It is a shell that echoes in each, the same.
func (r *rig) echo(ctx context.Context) (report.Section, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	section := report.Section{Title: "A key's echo on a terminal"}
	if err := r.Apply(ctx, fmt.Sprintf(typist, r.busybox)); err != nil {
		return section, err
	}
	if _, err := r.create(ctx, vmi, "console"); err != nil {
		return section, err
	}
	if _, err := r.answers(ctx, "console"); err != nil {
		return section, err
	}
	if err := r.WaitFor(ctx, "pod/typist", "condition=Ready", "--namespace="+namespace); err != nil {
		return section, err
	}
	pod, err := r.Kubectl(ctx, "get", "pods", "--namespace="+namespace, "--selector=vm.kubevirt.io/name=console", "-o", "name")
	if err != nil {
		return section, err
	}
	pod = strings.TrimSpace(pod)
	for _, way := range []struct {
		name   string
		client func(context.Context, ...string) *exec.Cmd
		args   []string
	}{
		{"pod: kubectl attach", r.KubectlCommand, []string{"attach", "-it", "pod/typist"}},
		{"pod: kubectl exec -it", r.KubectlCommand, []string{"exec", "-it", "pod/typist", "--", "sh"}},
		{"VMI: kubectl attach", r.KubectlCommand, []string{"attach", "-it", pod}},
		{"VMI: virtctl console", r.VirtctlCommand, []string{"console", "console"}},
	} {
		fmt.Fprintf(r.log, "a key's echo: %s\n", way.name)
		times, err := echoes(ctx, way.client(ctx, append([]string{"--namespace=" + namespace}, way.args...)...))
		if err != nil {
			return section, fmt.Errorf("%s: %w", way.name, err)
		}
		section.Rows = append(section.Rows, report.Row{Name: way.name, Unit: "ms", Kind: report.Value, Measured: times})
	}
	_, err = r.remove(ctx, vmi, "console")
	_, podErr := r.Kubectl(ctx, "delete", "pod", "typist", "--namespace="+namespace)
	section.Notes = []string{
		fmt.Sprintf("Of %d keys each, one at a time, from the client's terminal and back to it. The guest is emulated", keystrokes),
		"where there is no KVM, its shell's work included.",
	}
	return section, errors.Join(err, podErr)
}

// echoes types into a client on a terminal, one key at a time.
func echoes(ctx context.Context, cmd *exec.Cmd) (s report.Series, err error) {
	cmd.SysProcAttr.Setpgid = false // the terminal makes it a session's leader, and so a group's
	terminal, err := pty.Start(cmd)
	if err != nil {
		return s, err
	}
	defer func() {
		_ = cmd.Cancel()
		_ = terminal.Close()
		_ = cmd.Wait() // it was killed
	}()
	seen := make(chan []byte)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(seen)
		for {
			buf := make([]byte, 4096)
			n, err := terminal.Read(buf)
			if err != nil {
				return
			}
			select {
			case seen <- buf[:n]:
			case <-done:
				return
			}
		}
	}()
	// Until the other side answers, the terminal's own echo is on.
	if err := until(ctx, terminal, "echo $((40 + 2))-there\n", "42-there", seen); err != nil {
		return s, err
	}
	for i := range keystrokes {
		if i%20 == 0 { // a line is not that long
			if err := until(ctx, terminal, "\x15echo $((40 + 2))-again\n", "42-again", seen); err != nil {
				return s, err
			}
			if err := quiet(ctx, seen); err != nil {
				return s, err
			}
		}
		begun := time.Now()
		if err := until(ctx, terminal, "x", "x", seen); err != nil {
			return s, err
		}
		s.Add(milliseconds(time.Since(begun)))
	}
	return s, nil
}

// until types a text and waits for another. What is not answered in a while is typed again, if it is a line.
func until(ctx context.Context, terminal *os.File, text, want string, seen <-chan []byte) error {
	again := 5 * time.Second
	if !strings.HasSuffix(text, "\n") {
		again = limit
	}
	var all bytes.Buffer
	for {
		if _, err := terminal.WriteString(text); err != nil {
			return fmt.Errorf("type: %w; seen: %q", err, all.String())
		}
		retry := time.After(again)
	wait:
		for {
			select {
			case part, ok := <-seen:
				if !ok {
					return fmt.Errorf("the client has ended; seen: %q", all.String())
				}
				if all.Write(part); bytes.Contains(all.Bytes(), []byte(want)) {
					return nil
				}
			case <-retry:
				break wait
			case <-ctx.Done():
				return fmt.Errorf("wait for %q: %w; seen: %q", want, context.Cause(ctx), all.String())
			}
		}
	}
}

// quiet waits until nothing has come for a moment: a prompt follows an answer.
func quiet(ctx context.Context, seen <-chan []byte) error {
	for {
		select {
		case _, ok := <-seen:
			if !ok {
				return errors.New("the client has ended")
			}
		case <-time.After(500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
