package disk

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// subPathMount finds the pod's folder and the volume's name in the path of a mount
// with a subPath, which the kubelet binds there for each container.
var subPathMount = regexp.MustCompile(`^(.*/pods/[^/]+)/volume-subpaths/([^/]+)/[^/]+/[0-9]+$`)

// noDisks are the kinds of volumes that hold files for a container, and no disks.
var noDisks = []string{"configmap", "downward-api", "empty-dir", "projected", "secret"}

// checkSubPath refuses a mount with a subPath of a volume that is no PVC. The path
// does not name the volume's kind, unlike that of a mount without a subPath, which
// package vmspec checks. The pod's folder of volumes does.
func checkSubPath(host string) error {
	m := subPathMount.FindStringSubmatch(host)
	if m == nil {
		return nil
	}
	kinds, err := filepath.Glob(filepath.Join(escapeGlob(m[1]), "volumes", "*", escapeGlob(m[2])))
	if err != nil {
		return fmt.Errorf("find the kind of the volume: %w", err)
	}
	for _, path := range kinds {
		if kind, ok := strings.CutPrefix(filepath.Base(filepath.Dir(path)), "kubernetes.io~"); ok && slices.Contains(noDisks, kind) {
			return fmt.Errorf("%w: volumes of kind %s are not supported in a VM yet; remove it", ErrVolume, kind)
		}
	}
	return nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
