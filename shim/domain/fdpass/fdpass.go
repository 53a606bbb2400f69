// Package fdpass gets open files by a unix socket, for the program that libvirt starts in QEMU's place.
//
// It owns the wire: one message with a text and the descriptors. Package server is the other end. It works
// without package net, so that the program stays small.
package fdpass

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxFiles bounds the descriptors of a message; it is the kernel's bound.
	MaxFiles = 253
	// MaxText bounds the text of a message, in bytes.
	MaxText = 4096
	// patience bounds the wait for the other end.
	patience = 10 * time.Second
)

var errNone = errors.New("no descriptor came")

// Variable returns the value of a variable of an environment; empty if there is none.
func Variable(env []string, name string) string {
	value := ""
	for _, e := range env {
		if text, found := strings.CutPrefix(e, name+"="); found {
			value = text
		}
	}
	return value
}

// Receive returns the text and the descriptors that the server at a path passes. The next program that the
// process executes inherits them.
func Receive(path string) (text string, fds []int, err error) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, option, &limit); err != nil {
			return "", nil, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: path}); err != nil {
		return "", nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	data, rights := make([]byte, MaxText), make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, rightsLength, flags, _, err := unix.Recvmsg(s, data, rights, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsLength])
	if err != nil || len(messages) != 1 || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		return "", nil, errors.Join(errNone, err)
	}
	if fds, err = unix.ParseUnixRights(&messages[0]); err != nil || len(fds) == 0 {
		return "", nil, errors.Join(errNone, err)
	}
	return string(data[:n]), fds, nil
}

// Check returns an error for what does not fit into a message.
func Check(text string, files int) error {
	if text == "" || len(text) > MaxText || files == 0 || files > MaxFiles {
		return fmt.Errorf("%d bytes and %d files are no message: at most %d and %d are", len(text), files, MaxText, MaxFiles)
	}
	return nil
}
