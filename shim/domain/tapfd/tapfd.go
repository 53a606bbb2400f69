// Package tapfd gives QEMU taps of another network namespace.
//
// It owns what the program does that libvirt starts in QEMU's place: it gets the taps by package fdpass, and
// puts them in the place of those that libvirt has opened. So QEMU's arguments stay as libvirt made them, and
// libvirt needs to know nothing of the taps. Package netsetup opens them.
package tapfd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/domain/fdpass"
)

// Variable is the variable of QEMU's environment that holds the socket's path.
const Variable = "NODEVIRT_TAPS"

// Card names a card by its alias in the domain, and says how many queues it has, and so descriptors.
type Card struct {
	Alias  string
	Queues int
}

// Text returns the text of the message that has the cards' descriptors, in their order.
func Text(cards []Card) string {
	var b strings.Builder
	for _, c := range cards {
		fmt.Fprintf(&b, "%s %d\n", c.Alias, c.Queues)
	}
	return b.String()
}

// Take puts the taps of the environment's socket, if there is one, in the place of those in QEMU's arguments.
func Take(args, env []string) error {
	path := fdpass.Variable(env, Variable)
	if path == "" {
		return nil
	}
	text, fds, err := fdpass.Receive(path)
	if err != nil {
		return fmt.Errorf("get the VM's taps from %s: %w", path, err)
	}
	return replace(args, text, fds)
}

// replace puts descriptors in the place of those that the arguments name, and closes the others.
func replace(args []string, text string, fds []int) error {
	for line := range strings.Lines(text) {
		alias, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		queues, err := strconv.Atoi(number)
		if err != nil || queues < 1 || queues > len(fds) {
			return fmt.Errorf("the line %.80q is no card with one of %d taps", line, len(fds))
		}
		opened, err := descriptors(args, alias)
		if err != nil {
			return err
		}
		if len(opened) != queues {
			return fmt.Errorf("network card %s has %d queues in QEMU's arguments, and %d taps", alias, len(opened), queues)
		}
		for i, own := range opened {
			if err := unix.Dup3(fds[i], own, 0); err != nil {
				return fmt.Errorf("give QEMU the tap of network card %s: %w", alias, err)
			}
			_ = unix.Close(fds[i]) // the copy stays
		}
		fds = fds[queues:]
	}
	if len(fds) > 0 {
		return fmt.Errorf("%d taps are of no network card", len(fds))
	}
	return nil
}

// errNoCard says that QEMU's arguments do not have a card as libvirt writes one.
var errNoCard = errors.New("no tap in QEMU's arguments")

// descriptors returns the numbers of the descriptors that the arguments have for a card.
func descriptors(args []string, alias string) ([]int, error) {
	for i := 1; i < len(args); i++ {
		if args[i-1] != "-netdev" {
			continue
		}
		var device struct {
			ID   string `json:"id"`
			Type string `json:"type"`
			FD   string `json:"fd"`
			FDs  string `json:"fds"`
		}
		if json.Unmarshal([]byte(args[i]), &device) != nil || device.ID != "host"+alias || device.Type != "tap" {
			continue
		}
		var all []int
		for text := range strings.SplitSeq(device.FD+device.FDs, ":") {
			fd, err := strconv.Atoi(text)
			if err != nil || fd <= unix.Stderr {
				return nil, fmt.Errorf("network card %s: descriptor %.80q: %w", alias, text, errNoCard)
			}
			all = append(all, fd)
		}
		return all, nil
	}
	return nil, fmt.Errorf("network card %s: %w", alias, errNoCard)
}
