// Logcheck verifies C2SP transparency logs with golang.org/x/mod/sumdb, the
// verifier of the Go checksum database. It shares no code with Toolgate.
//
//	logcheck note       -vkey KEY FILE
//	logcheck checkpoint -vkey KEY [-witness KEY]... FILE
//	logcheck proof      -vkey KEY [-witness KEY]... [-leaf FILE] FILE
//	logcheck log        -vkey KEY [-witness KEY]... [-old FILE]... [-header LINE] FOLDER|URL
//
// It prints what it verified as JSON and exits with 0, or prints the reason of
// the rejection and exits with 1. Wrong arguments exit with 2.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	if len(os.Args) < 2 {
		usage("no command")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	vkey := flags.String("vkey", "", "verifier key of the log")
	leaf := flags.String("leaf", "", "file with the leaf, instead of the one in the proof")
	header := flags.String("header", "", "HTTP header sent with requests for entries")
	var witnesses, old list
	flags.Var(&witnesses, "witness", "verifier key of a witness")
	flags.Var(&old, "old", "file with an older checkpoint of the log")
	flags.Parse(os.Args[2:])
	if flags.NArg() != 1 || *vkey == "" {
		usage("a -vkey and one file, folder or URL are needed")
	}

	keys, err := newKeys(*vkey, witnesses)
	if err != nil {
		reject(err)
	}
	var result any
	switch os.Args[1] {
	case "note":
		result, err = checkNote(keys, flags.Arg(0))
	case "checkpoint":
		result, err = checkCheckpoint(keys, flags.Arg(0))
	case "proof":
		result, err = checkProof(keys, flags.Arg(0), *leaf)
	case "log":
		result, err = checkLog(keys, newSource(flags.Arg(0), *header), old)
	default:
		usage("unknown command " + os.Args[1])
	}
	if err != nil {
		reject(err)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func reject(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func usage(problem string) {
	fmt.Fprintf(os.Stderr, "%s\nusage: logcheck note|checkpoint|proof|log -vkey KEY [options] FILE|FOLDER|URL\n", problem)
	os.Exit(2)
}

func checkNote(keys *keys, path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	signed, err := note.Open(text, note.VerifierList(keys.log))
	if err != nil {
		return nil, err
	}
	return map[string]string{"text": signed.Text}, nil
}

func checkCheckpoint(keys *keys, path string) (*checkpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return keys.open(text)
}
