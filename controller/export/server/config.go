package server

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Names of the files that the server reads. All but the last are in [ServerFolder].
const (
	FileConfig    = "config.json"
	FileManifests = "manifests.json"
	// FileExternalManifests has the same objects as FileManifests, for clients outside of the cluster.
	FileExternalManifests = "manifests-external.json"

	FileCertificate = "tls.crt"
	FileKey         = "tls.key"
	// FileToken is in [TokenFolder]. It has the name that KubeVirt's clients give the Secret's key.
	FileToken = "token"
)

// The folders of these files, below the folder that [Run] gets.
const (
	ServerFolder = "server"
	TokenFolder  = "token"
	// PushFolder has the Secret for the registry, if there is one. Only the init container that
	// pushes a disk has it.
	PushFolder = "push"
)

// Flag is the argument by which nodevirt-controller serves an export; the folder follows.
const Flag = "-export-server"

// Port is the port on which the server listens in its pod.
const Port = 8443

// Config is what a server serves.
type Config struct {
	// Name is the export's.
	Name string `json:"name"`
	// Volumes have different names.
	Volumes []Volume `json:"volumes"`
	// Manifests says that the export is of a VM, whose manifests are in [FileManifests].
	Manifests bool `json:"manifests,omitempty"`
	// External is the export's URL at the export proxy that the manifests for clients outside of the
	// cluster have; "" for no such manifests.
	External string `json:"external,omitempty"`
	// Backup is what the VM's node serves; nil for nothing.
	Backup *Backup `json:"backup,omitempty"`
	// Push says what the init container pushes; nil for nothing.
	Push *Push `json:"push,omitempty"`
}

// Push is a disk that becomes a registry disk.
type Push struct {
	// Image is the reference: REGISTRY/NAME:TAG.
	Image string `json:"image"`
	// Volume is the name of one of the volumes.
	Volume string `json:"volume"`
	// Architecture is that of the guest's code, by Go's name; "" for the node's.
	Architecture string `json:"architecture,omitempty"`
}

// ReadConfig reads the config below the folder that [Run] gets.
func ReadConfig(dir string) (Config, error) {
	var c Config
	if err := readJSON(filepath.Join(dir, ServerFolder, FileConfig), &c); err != nil {
		return c, fmt.Errorf("read the export's config: %w", err)
	}
	return c, nil
}

// Volume is a PVC in the server's pod.
type Volume struct {
	// Name is the PVC's.
	Name string `json:"name"`
	// Path is that of the block device or of the folder.
	Path string `json:"path"`
	// Block says that the PVC is a block device.
	Block bool `json:"block,omitempty"`
	// Disk says that the folder has a guest's disk in the file disk.img.
	Disk bool `json:"disk,omitempty"`
}

// maxFile bounds what the server reads of a file, in bytes: more than a Secret holds.
const maxFile = 2 << 20

// ReadFile returns the content of a file that Kubernetes has mounted.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFile)
	}
	return content, err
}

func readJSON(path string, into any) error {
	content, err := ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}
