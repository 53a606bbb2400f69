package expand

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
)

// Tool are qemu-img and qemu-nbd, and what confines them.
type Tool struct {
	// QemuImg and QemuNBD are the paths of the programs.
	QemuImg, QemuNBD string
	// Stage is a command that calls [confine.Enter] with its last argument, Dir, which Run adds.
	Stage []string
	// Dir is a folder on which each process mounts a file tree that only it sees.
	Dir string
}

// Run runs a program with the files that it inherits, from descriptor 3 on, and calls started, if not nil, before the program
// reads one. The program has ended when Run returns; it ends with ctx.
func (t Tool) Run(
	ctx context.Context, p confine.Program, files []*os.File, stdout, stderr io.Writer, started func(pid int) error,
) error {
	path, err := exec.LookPath(p.Path)
	if err != nil {
		return err
	}
	p.Path = path
	work, err := json.Marshal(p)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, t.Stage[0], append(slices.Clone(t.Stage[1:]), t.Dir)...)
	cmd.Env = []string{"LC_ALL=C"}
	cmd.ExtraFiles = files
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	return runLocked(cmd, work, started)
}

// Conversion is a run of qemu-img convert that makes a raw disk. qemu-img runs as package confine
// describes.
type Conversion struct {
	Tool Tool
	// UID is the user that qemu-img runs as, which owns no other files and must own To. From may be of
	// any owner.
	UID uint32
	// From is open for reading. To is open for reading and writing: a file or a block device
	// of at least the disk's size. Both stay the caller's.
	From, To *os.File
	// Format is the format of From, by QEMU's name.
	Format string
	// Zeroed means that To reads as zeros, so that zeros need not be written.
	Zeroed bool
	// Offload lets the file system share or copy data if it can.
	Offload bool
	// Started, if not nil, is called with the id of the process before it reads the disk. An error
	// makes Run fail.
	Started func(pid int) error
}

// The descriptors that the process inherits.
const (
	fromFD = 3
	toFD   = 4
)

// Run converts, and calls progress, from another goroutine, with the completed part, from 0 to 1.
// qemu-img has ended when Run returns, and it ends with this process.
func (c Conversion) Run(ctx context.Context, progress func(done float64)) error {
	private, err := confine.Private(c.From)
	if err != nil {
		return fmt.Errorf("convert to raw: %w", err)
	}
	stderr := &head{}
	err = c.Tool.Run(ctx, confine.Program{
		Path: c.Tool.QemuImg, Args: append([]string{"qemu-img"}, c.args()...),
		UID: c.UID, GID: c.UID, ReadAll: private,
		Descriptors: []int{fromFD, toFD}, EndsWithParent: true,
	}, []*os.File{c.From, c.To}, &percent{progress: progress}, stderr, c.Started)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) // not "signal: killed"
	case bytes.Contains(stderr.b, []byte("No space left on device")):
		err = syscall.ENOSPC
	}
	return fmt.Errorf("convert to raw: %w: %q", err, bytes.TrimSpace(stderr.b))
}

// args returns qemu-img's arguments. Sixteen parallel requests, written in any order, were the
// fastest variant measured; see docs/performance.md.
func (c Conversion) args() []string {
	from, to := fmt.Sprintf("/proc/self/fd/%d", fromFD), fmt.Sprintf("/proc/self/fd/%d", toFD)
	args := []string{"convert", "-p", "-O", "raw", "-n", "-W", "-m", "16"}
	if c.Zeroed {
		args = append(args, "--target-is-zero")
	}
	if c.Offload {
		args = append(args, "-C")
	} else {
		// Holes of at least a qcow2 cluster: cloning or removing a file of single blocks would
		// take seconds.
		args = append(args, "-S", "64k")
	}
	return append(args, "-f", c.Format, from, to)
}

// runLocked runs a command on a thread that lives as long as the command: for the kernel the
// parent of Pdeathsig is a thread. The process gets its work when started has returned.
func runLocked(cmd *exec.Cmd, work []byte, started func(pid int) error) error {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			done <- err
			return
		}
		var refused error
		if started != nil {
			refused = started(cmd.Process.Pid)
		}
		if refused == nil {
			_, refused = stdin.Write(work)
		}
		// Without its work the process ends.
		_ = stdin.Close()
		done <- errors.Join(refused, cmd.Wait())
	}()
	return <-done
}

// percent parses the output of qemu-img -p: "    (12.34/100%)" and a carriage return.
type percent struct {
	progress func(float64)
	line     []byte
}

// maxLine is longer than any line of qemu-img's progress.
const maxLine = 64

func (p *percent) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\r' || c == '\n' {
			if done, err := parsePercent(p.line); err == nil {
				p.progress(done)
			}
			p.line = p.line[:0]
		} else if len(p.line) < maxLine {
			p.line = append(p.line, c)
		}
	}
	return len(b), nil
}

var errNoPercent = errors.New("no progress")

func parsePercent(line []byte) (float64, error) {
	text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("("))
	number, _, slash := bytes.Cut(text, []byte("/"))
	if !ok || !slash {
		return 0, errNoPercent
	}
	v, err := strconv.ParseFloat(string(number), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, errNoPercent
	}
	return v / 100, nil
}

// head keeps the beginning of a program's output.
type head struct{ b []byte }

const maxHead = 1000

func (t *head) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxHead-len(t.b))]...)
	return len(b), nil
}
