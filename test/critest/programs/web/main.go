// Command web replaces the web servers of critest's images: it answers on the port that the
// environment names, and keeps its process id where critest looks for nginx's.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if err := os.WriteFile("/var/run/nginx.pid", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return err
	}
	address := ":" + os.Getenv("PORT")
	fmt.Println("in place of httpd and nginx, listening on", address)
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "Welcome")
	}))
}
