package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/iso"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// filesDisk is a disk with the files of a volume that the container mounts, such as
// those of a ConfigMap.
func filesDisk(files folders) isoDisk {
	return isoDisk{
		files: files,
		name:  func(k Disk) string { return "files-" + k.Name + ".iso" },
		write: func(ctx context.Context, k Disk, path string) error {
			return iso.Write(ctx, path, k.Label, func(to *iso.Files) error {
				m := mountedFiles{to: to}
				err := m.copyMount(k.Host)
				if err == nil && k.Source == vmspec.SourceSysprep && !m.answers {
					err = errNoAnswers
				}
				if err != nil {
					return fmt.Errorf("%w: %w", ErrVolume, err)
				}
				return nil
			})
		},
	}
}

// errNoAnswers says that Windows would find nothing on a disk.
var errNoAnswers = errors.New("sysprep needs a file autounattend.xml or unattend.xml: add such a key to the ConfigMap or Secret")

// mountedFiles copies the files of a mount. Its author may be anyone who can write to
// the volume: links lead nowhere but within the mount, and what is read is bounded.
type mountedFiles struct {
	to      *iso.Files
	entries int
	answers bool // there is an answer file of Windows
}

func (m *mountedFiles) copyMount(host string) error {
	root, err := os.OpenRoot(host)
	if err != nil {
		return err
	}
	defer root.Close()
	// The kubelet replaces this link when the object changes: below it all files are of
	// one version.
	version, err := root.OpenRoot("..data")
	if errors.Is(err, fs.ErrNotExist) {
		return m.copyFolder(root, ".")
	}
	if err != nil {
		return err
	}
	defer version.Close()
	return m.copyFolder(version, ".")
}

func (m *mountedFiles) copyFolder(root *os.Root, folder string) error {
	if strings.Count(folder, "/") >= iso.MaxDepth { // links may go round in a circle
		return fmt.Errorf("%w: more than %d folders in each other", iso.ErrBounds, iso.MaxDepth)
	}
	dir, err := root.Open(folder)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(iso.MaxFiles + 1 - m.entries)
	if err := errors.Join(notEnd(err), dir.Close()); err != nil {
		return err
	}
	if m.entries += len(names); m.entries > iso.MaxFiles {
		return fmt.Errorf("%w: more than %d files and folders", iso.ErrBounds, iso.MaxFiles)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, "..") { // the kubelet's
			continue
		}
		if err := m.copyEntry(root, path.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

func (m *mountedFiles) copyEntry(root *os.Root, name string) error {
	// A device or a pipe must not be waited for.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return m.copyFolder(root, name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q is no file", name)
	}
	switch strings.ToLower(name) {
	case "autounattend.xml", "unattend.xml":
		m.answers = true
	}
	return m.to.Add(name, 0o644, f)
}

// notEnd returns an error unless it says that a folder has no further entries.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
