package e2e

import (
	"embed"
	"net/http"
	"os"
	"path"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/images"
)

// Programs that guests run, each of one source file.
//
//go:embed programs
var programs embed.FS

// shell is a guest's program that runs what it is given.
const shell = "#!/bin/sh\nexport PATH=/bin\nsh -c \"$(cat)\" 2>&1 || true\n"

// installs gives the guest a program, in place of one that it had.
func (c *container) installs(name string) {
	c.t.Helper()
	source, err := programs.ReadFile(path.Join("programs", name, "main.go"))
	assert.NilError(c.t, err)
	program, err := images.Program(c.t.Context(), suite.GuestOptions(), name, source)
	assert.NilError(c.t, err)
	binary, err := os.ReadFile(program.From)
	assert.NilError(c.t, err)
	c.post("/cgi-bin/program", string(binary))
}

// runs has the guest run the program, and returns what it says.
func (c *container) runs(input string) string {
	c.t.Helper()
	answer, err := suite.Fetch(c.t.Context(), http.MethodPost, c.url("/cgi-bin/run"), input)
	assert.NilError(c.t, err)
	return answer
}
