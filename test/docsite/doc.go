// Package docsite checks the documentation's site as make docs-site writes it. It leaves the pages' text
// to package docs.
package docsite
