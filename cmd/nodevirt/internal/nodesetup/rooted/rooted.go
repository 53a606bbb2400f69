// Package rooted finds the files of a node below its root folder, as programs of the node find them: an absolute symbolic link
// leads to a file below the same root folder. Package os takes such a link for one that leads out.
//
// It leaves the writing of files to package journal.
package rooted

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// maxLinks bounds how many links lead to a file, as in Linux.
const maxLinks = 40

// Resolve returns a path, which is relative to the root folder, without symbolic links. A part of the path need not exist.
func Resolve(root *os.Root, name string) (string, error) {
	done, rest := ".", split(name)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		target, err := root.Readlink(next)
		if err != nil { // no link, or no file
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("follow the links of /%s: %w", name, syscall.ELOOP)
		}
		if path.IsAbs(target) {
			done = "."
		}
		rest = append(split(target), rest...)
	}
	return done, nil
}

// Place returns the path of a file in a folder without symbolic links. The file itself may be a link.
func Place(root *os.Root, name string) (string, error) {
	dir, err := Resolve(root, path.Dir(name))
	return path.Join(dir, path.Base(name)), err
}

// split returns the parts of a path.
func split(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// ReadFile reads a file.
func ReadFile(root *os.Root, name string) ([]byte, error) {
	at, err := Resolve(root, name)
	if err != nil {
		return nil, err
	}
	return root.ReadFile(at)
}

// Stat describes the file to which a path leads.
func Stat(root *os.Root, name string) (os.FileInfo, error) {
	at, err := Resolve(root, name)
	if err != nil {
		return nil, err
	}
	return root.Stat(at)
}
