"""Server and client of a federation: Accord's own."""

from accord.flower import client_app, server_app

server = server_app()
client = client_app()
