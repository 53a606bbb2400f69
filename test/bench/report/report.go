package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// File is the name of the file that Write makes.
const File = "bench.json"

// Report is all that one run measured.
type Report struct {
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"` // how long the run took
	Machine  Machine   `json:"machine"`
	Sections []Section `json:"sections"`
}

// Section is what one bench measured.
type Section struct {
	Title string   `json:"title"`
	Notes []string `json:"notes,omitempty"` // what a reader must know, a line each
	Rows  []Row    `json:"rows"`
}

// Missed counts the rows that miss their goals.
func (r Report) Missed() int {
	n := 0
	for _, s := range r.Sections {
		for _, row := range s.Rows {
			if !row.Met() {
				n++
			}
		}
	}
	return n
}

// Publish prints the table, and with a folder's name writes the file there, too.
func (r Report) Publish(out io.Writer, folder string) error {
	fmt.Fprintln(out)
	if err := r.Table(out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nMeasured in %.0f s; %d of the goals missed.\n", r.Seconds, r.Missed())
	if folder == "" {
		return nil
	}
	path, err := r.Write(folder)
	if err == nil {
		fmt.Fprintf(out, "All samples are in %s.\n", path)
	}
	return err
}

// Write puts the report into a folder, which is made if needed, and returns the file's path.
func (r Report) Write(dir string) (path string, err error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the report: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write the report: %w", err)
	}
	path = filepath.Join(dir, File)
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("write the report: %w", err)
	}
	return path, nil
}
