package server

import (
	"net/http"
	"os"
)

// folderFile is the last part of a folder's path; names of files follow it.
const folderFile = "dir/"

// serveFolder serves the files of a folder, and lists of them.
func serveFolder(v *volume, w http.ResponseWriter, r *http.Request) error {
	http.StripPrefix(pathOf(v.Volume, folderFile), http.FileServer(folder{v.root})).ServeHTTP(w, r)
	return nil
}

// folder is what a file server reads.
type folder struct{ root *os.Root }

// Open opens a file by its path from the root, which begins with a slash.
func (f folder) Open(name string) (http.File, error) {
	if name = name[1:]; name == "" {
		name = "."
	}
	return openFile(f.root, name)
}
