package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// checkpoint is a checkpoint whose signatures were verified.
type checkpoint struct {
	Origin      string        `json:"origin"`
	Size        int64         `json:"size"`
	Root        string        `json:"root"`
	Cosignature []cosignature `json:"cosignatures"`

	tree tlog.Tree
}

type cosignature struct {
	Witness string `json:"witness"`
	Time    uint64 `json:"time"`
}

// keys are the trusted key of a log and the trusted keys of witnesses.
type keys struct {
	log       note.Verifier
	witnesses []note.Verifier
}

func newKeys(vkey string, witnesses []string) (*keys, error) {
	log, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, fmt.Errorf("verifier key of the log: %w", err)
	}
	k := &keys{log: log}
	for _, text := range witnesses {
		w, err := newWitness(text)
		if err != nil {
			return nil, fmt.Errorf("verifier key of a witness: %w", err)
		}
		k.witnesses = append(k.witnesses, w)
	}
	return k, nil
}

// open verifies the signatures of a checkpoint: that of the log, and those of
// all witnesses.
func (k *keys) open(text []byte) (*checkpoint, error) {
	signed, err := note.Open(text, note.VerifierList(append([]note.Verifier{k.log}, k.witnesses...)...))
	if err != nil {
		return nil, err
	}
	times := map[string]uint64{}
	byLog := false
	for _, s := range signed.Sigs {
		if s.Name == k.log.Name() && s.Hash == k.log.KeyHash() {
			byLog = true
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(s.Base64)
		if err != nil || len(raw) < 12 {
			return nil, fmt.Errorf("cosignature of %s is too short", s.Name)
		}
		times[s.Name] = binary.BigEndian.Uint64(raw[4:12])
	}
	if !byLog {
		return nil, fmt.Errorf("the log has not signed the checkpoint")
	}

	lines := strings.Split(signed.Text, "\n")
	if len(lines) != 4 {
		return nil, fmt.Errorf("checkpoint has %d lines, want 3", len(lines)-1)
	}
	if lines[0] != k.log.Name() {
		return nil, fmt.Errorf("origin is %q, but the key is that of %q", lines[0], k.log.Name())
	}
	// The parser of the checksum database expects its own origin; the rest of the format is the same.
	tree, err := tlog.ParseTree([]byte("go.sum database tree\n" + lines[1] + "\n" + lines[2] + "\n"))
	if err != nil {
		return nil, err
	}
	if lines[2] != tree.Hash.String() {
		return nil, fmt.Errorf("root hash %q is not canonical base64", lines[2])
	}
	if tree.N == 0 && tree.Hash != sha256.Sum256(nil) {
		return nil, fmt.Errorf("root hash %s is not that of the empty tree", lines[2])
	}
	c := &checkpoint{Origin: lines[0], Size: tree.N, Root: lines[2], Cosignature: []cosignature{}, tree: tree}
	for _, w := range k.witnesses {
		time, ok := times[w.Name()]
		if !ok {
			return nil, fmt.Errorf("witness %s has not cosigned the checkpoint", w.Name())
		}
		c.Cosignature = append(c.Cosignature, cosignature{Witness: w.Name(), Time: time})
	}
	return c, nil
}

// witness verifies cosignature/v1 signatures (algorithm 4), which x/mod lacks.
type witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func newWitness(vkey string) (*witness, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q does not have three parts", vkey)
	}
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) != 1+ed25519.PublicKeySize || key[0] != 4 {
		return nil, fmt.Errorf("%q is not an Ed25519 cosignature key", vkey)
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n"), key...))
	if fmt.Sprintf("%x", sum[:4]) != parts[1] {
		return nil, fmt.Errorf("key id of %q does not match its key", vkey)
	}
	return &witness{parts[0], binary.BigEndian.Uint32(sum[:4]), key[1:]}, nil
}

func (w *witness) Name() string    { return w.name }
func (w *witness) KeyHash() uint32 { return w.hash }

func (w *witness) Verify(text, signature []byte) bool {
	if len(signature) != 8+ed25519.SignatureSize {
		return false
	}
	var message bytes.Buffer
	fmt.Fprintf(&message, "cosignature/v1\ntime %d\n%s", binary.BigEndian.Uint64(signature), text)
	return ed25519.Verify(w.key, message.Bytes(), signature[8:])
}
