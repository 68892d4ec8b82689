module toolgate/logcheck

go 1.25.0

require golang.org/x/mod v0.36.1-0.20260813213634-8569e2639ca1
