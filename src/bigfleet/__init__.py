"""BigFleet: decides, for a whole fleet, which machine serves which cluster.

Importing the package fixes two process-wide settings before gRPC can be loaded, which reads them from the environment
once: its cipher list, the only way to refuse TLS 1.2 from Python (`bigfleet.transport.tls13` explains and verifies
it), and, unless the user chose, its own verbosity, so that its remarks do not run through structured logs.
"""

import os

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
