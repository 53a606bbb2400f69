// Intruder stands for a QEMU that its guest has taken over. It tries each action on its standard
// input, one a line, and answers each with a line: "done", or why it failed.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		action, object, _ := strings.Cut(lines.Text(), " ")
		answer := "done"
		if err := do(action, object); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
}

func do(action, object string) error {
	switch action {
	case "tcp", "udp", "unix", "unixpacket", "unixgram":
		return dial(action, object)
	case "read":
		f, err := os.Open(object)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.IsDir() {
			_, err := f.Readdirnames(1)
			return err
		}
		_, err = f.Read(make([]byte, 1))
		return err
	case "write":
		f, err := os.OpenFile(object, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	case "create":
		path := object + "/intruder"
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return os.Remove(f.Name())
	}
	pid, err := strconv.Atoi(object)
	if err != nil {
		return err
	}
	switch action {
	case "signal":
		return syscall.Kill(pid, syscall.SIGCONT)
	case "trace":
		return syscall.PtraceAttach(pid)
	case "limit":
		return syscall.Setpriority(syscall.PRIO_PROCESS, pid, 19)
	}
	return fmt.Errorf("unknown action %q", action)
}

// dial sends a byte, since a UDP socket connects without one.
func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if network == "udp" {
		_, err = c.Write([]byte{0})
	}
	return err
}
