package imageunpack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

const (
	// diskDir is the folder of the disk in KubeVirt's images; it can be the disk itself.
	diskDir = "/disk"
	// maxEntries is how many entries of a folder are read.
	maxEntries = 1000
	// maxNames is how many names an error lists.
	maxNames = 5
)

const howToChoose = "name one with containerDisk.path in the nodevirt.io/vmi annotation, " +
	"or keep only one"

// findDisk returns the absolute path of the disk in an image. Want is the path in the request, or
// empty.
func findDisk(root *os.Root, want string) (string, error) {
	if path.IsAbs(want) && !inDisk(path.Clean(want)) {
		name := path.Clean(want)
		if _, err := stat(root, name); err != nil {
			return "", err
		}
		return name, checkName(name)
	}
	name, err := belowDisk(want)
	if err != nil {
		return "", err
	}
	if _, err := root.Lstat(inRoot(diskDir)); errors.Is(err, fs.ErrNotExist) {
		return "", ErrNoDisk
	}
	info, err := stat(root, name)
	switch {
	case errors.Is(err, ErrNotFound) && name != diskDir:
		return "", fmt.Errorf("%w; %s", err, whatThereIs(root))
	case err != nil:
		return "", err
	case info.IsDir() && name == diskDir:
		if name, err = onlyFile(root); err != nil {
			return "", err
		}
	}
	return name, checkName(name)
}

// checkName refuses a path that records, libvirt's XML and logs cannot hold as it is.
func checkName(name string) error {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return nil
	}
	return fmt.Errorf("%.*q: %w: it is not UTF-8, or has characters that cannot be printed: rename the file in the image",
		maxQuoted, name, ErrName)
}

// whatThereIs describes /disk for a user who named a file that isn't there.
func whatThereIs(root *os.Root) string {
	entries, err := readDir(root, diskDir)
	if err != nil {
		return diskDir + " is the disk itself: name no path"
	}
	return fmt.Sprintf("%s holds %s", diskDir, listed(entries))
}

// belowDisk returns want as an absolute, clean path that is /disk or below it.
func belowDisk(want string) (string, error) {
	if !path.IsAbs(want) {
		want = diskDir + "/" + want
	}
	clean := path.Clean(want)
	if !inDisk(clean) {
		return "", fmt.Errorf("path %q %w: it is relative to %s, name a file there", want, ErrOutside, diskDir)
	}
	return clean, nil
}

// inDisk reports whether an absolute, clean path is /disk or below it.
func inDisk(clean string) bool { return clean == diskDir || strings.HasPrefix(clean, diskDir+"/") }

// onlyFile returns the path of the only regular file in /disk.
func onlyFile(root *os.Root) (string, error) {
	entries, err := readDir(root, diskDir)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", fmt.Errorf("%s is an empty folder: %w", diskDir, ErrNoDisk)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%w: %s has no regular file in it, only %s; %s",
			ErrAmbiguous, diskDir, listed(entries), howToChoose)
	case 1:
		return path.Join(diskDir, names[0]), nil
	}
	return "", fmt.Errorf("%w: %s has more than one file in it: %s; %s",
		ErrAmbiguous, diskDir, listed(entries), howToChoose)
}

// readDir reads the first entries of a folder, which may be of any length.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	// The name may be that of a pipe, whose open would wait for a writer, or of a device.
	dir, err := root.OpenFile(inRoot(name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, lookupError(name, err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read folder %q: %w", name, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// listed returns the first names of a folder, quoted: they are untrusted.
func listed(entries []fs.DirEntry) string {
	if len(entries) == 0 {
		return "nothing"
	}
	var names []string
	for _, e := range entries[:min(len(entries), maxNames)] {
		names = append(names, fmt.Sprintf("%q", e.Name()))
	}
	if len(entries) > maxNames {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
