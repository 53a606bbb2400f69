// Program census compares a machine before and after tests: what lies in /dev, /etc, /run and /sys/fs/cgroup with its owner,
// mode and kind, and the rules of the machine's own firewall.
//
//	census take FILE      writes it to a file
//	census compare FILE   fails if what was there has changed or gone, or if tests left something
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// tops are the folders that are compared. They belong to the machine, and tests have their own.
var tops = []string{"/dev", "/etc", "/run", "/sys/fs/cgroup"}

// others matches what other programs of the machine, and the kernel, make, change and remove at any time. It hides nothing
// of [ours].
var others = regexp.MustCompile("^(" + strings.Join([]string{
	`/dev/(pts|shm|mqueue)/.*`,                      // terminals, shared memory and queues of processes
	`/dev/(loop|nbd|dm-)\d+(p\d+)?`,                 // the kernel makes them when a program first asks, and udev changes their owner
	`/dev/net(/tun)?`,                               // comes with its module
	`/etc/(alternatives/.*|ld\.so\.cache|.*-|.*~)`,  // packages that a later step installs, and the copies that their users' tools keep
	`/etc/(mtab|resolv\.conf)`,                      // the container's or the network's manager writes them
	`/run/(lock|systemd|log|dbus|udev|mount)(/.*)?`, // the machine's own daemons
}, "|") + ")$")

// apart matches folders in which containers and users of the machine have whole file systems.
var apart = regexp.MustCompile(`^/run/(docker|containerd|user)$`)

// ours matches what must not be left, wherever it lies.
var ours = regexp.MustCompile(`nodevirt`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "census:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || args[0] != "take" && args[0] != "compare" {
		return errors.New("usage: census take|compare FILE")
	}
	now, err := take()
	if err != nil {
		return err
	}
	if args[0] == "take" {
		return os.WriteFile(args[1], now.text(), 0o600)
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	if found := compare(parse(text), now); len(found) > 0 {
		return fmt.Errorf("the machine is not as it was:\n%s", strings.Join(found, "\n"))
	}
	return nil
}

// census is what a machine has, by path or rule, with its owner, mode and kind.
type census map[string]string

func take() (census, error) {
	c := census{}
	for _, top := range tops {
		if err := c.walk(top); err != nil {
			return nil, err
		}
	}
	for _, command := range []string{"nft --stateless list ruleset", "iptables-legacy-save", "ip6tables-legacy-save"} {
		words := strings.Fields(command)
		if _, err := exec.LookPath(words[0]); err != nil {
			continue // and so nothing has rules there
		}
		out, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		c.rules(words[0], string(out))
	}
	return c, nil
}

// rules adds the lines of a list, each with its number among equal ones, without comments and counters, and without the frame
// of a table of iptables: the kernel makes empty ones when a program first asks.
func (c census) rules(of, list string) {
	equal := map[string]int{}
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line == "" || strings.ContainsRune("#:*", rune(line[0])) || line == "COMMIT" {
			continue
		}
		equal[line]++
		c[fmt.Sprintf("%s %d: %s", of, equal[line], line)] = rule
	}
}

// rule is what a rule is.
const rule = "rule"

// walk adds what lies below a folder, on whichever file system.
func (c census) walk(top string) error {
	return filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we looked, or the machine has no such folder
		}
		if err != nil {
			return err
		}
		if apart.MatchString(path) {
			return fs.SkipDir
		}
		if others.MatchString(path) && !ours.MatchString(path) {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		owner, _ := info.Sys().(*syscall.Stat_t)
		c[path] = fmt.Sprintf("%s %d:%d", info.Mode(), owner.Uid, owner.Gid)
		return nil
	})
}

// text is a line for each thing: a path has no line break here.
func (c census) text() []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s\t%s\n", c[name], name)
	}
	return b.Bytes()
}

func parse(text []byte) census {
	c := census{}
	for line := range strings.Lines(string(text)) {
		what, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		c[name] = what
	}
	return c
}

// compare lists what has changed, what has gone, and what came of ours or as a rule. Other programs of the machine make files, too.
func compare(before, now census) (found []string) {
	for name, was := range before {
		is, there := now[name]
		switch {
		case !there && (was == rule || !within(name, "/run") && !within(name, "/sys/fs/cgroup")):
			found = append(found, "- "+name+" "+was)
		case there && is != was:
			found = append(found, fmt.Sprintf("! %s was %s, is %s", name, was, is))
		}
	}
	for name, is := range now {
		_, there := before[name]
		_, withFolder := before[filepath.Dir(name)]
		if !there && (is == rule || withFolder && ours.MatchString(name)) {
			found = append(found, "+ "+name+" "+is)
		}
	}
	slices.Sort(found)
	return found
}

func within(name, top string) bool { return strings.HasPrefix(name, top+"/") }
